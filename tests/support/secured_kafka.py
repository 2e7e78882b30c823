"""Apache Kafka 4.3 with a SASL listener beside the open one, ACLs and delegation tokens.

Over the open listener everybody is User:ANONYMOUS, a super user. Users of PLAIN: alice, bob.
"""

from __future__ import annotations

from pathlib import Path

from tests.support.kafka import KafkaProcess
from tests.support.waits import free_ports

_SECURITY = "org.apache.kafka.common.security"
PASSWORDS = {"alice": "alice's secret", "bob": 'bob"s, secret='}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


class SecuredKafka(KafkaProcess):
    """A broker whose `sasl_bootstrap` asks who one is; sessions end after `session_ms`."""

    def __init__(self, home: Path, session_ms: int = 0) -> None:
        self.sasl_port = free_ports(1)[0]
        super().__init__(home, {"connections.max.reauth.ms": str(session_ms)})

    @property
    def sasl_bootstrap(self) -> str:
        return f"127.0.0.1:{self.sasl_port}"

    def properties(self) -> dict[str, str]:
        base = super().properties()
        quoted = {user: word.replace('"', '\\\\"') for user, word in PASSWORDS.items()}
        users = " ".join(f'user_{user}="{word}"' for user, word in quoted.items())
        modules = {
            "plain": f"{_SECURITY}.plain.PlainLoginModule required {users};",
            "scram-sha-256": f"{_SECURITY}.scram.ScramLoginModule required;",
            "scram-sha-512": f"{_SECURITY}.scram.ScramLoginModule required;",
            "oauthbearer": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required"
            ' unsecuredLoginStringClaim_sub="broker";',
        }
        return base | {
            "listeners": f"{base['listeners']},SASL://127.0.0.1:{self.sasl_port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,"
            "SASL:SASL_PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;User:alice",
            "delegation.token.secret.key": "a secret of the broker",
            **{
                f"listener.name.sasl.{name}.sasl.jaas.config": text
                for name, text in modules.items()
            },
        }
