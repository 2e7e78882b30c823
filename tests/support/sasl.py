"""A kbroker with an open listener and one that asks who a client is, and what speaks to the latter.

Users of PLAIN are those of tests.support.secured_kafka; over the open listener others are made.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Self

from kbroker.client.admin_client import Admin
from kbroker.client.admin_users import ScramUpsertion
from kbroker.client.scram import Scram
from tests.support.kbroker import KbrokerProcess
from tests.support.secured_kafka import PASSWORDS
from tests.support.wire import WireConnection

HANDSHAKE, AUTHENTICATE = 17, 36
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
_BOUND = re.compile(r"^listening on SASL://127\.0\.0\.1:(\d+)", re.MULTILINE)


def plain_jaas() -> str:
    """The users of PLAIN as a listener's setting."""
    quoted = {user: word.replace('"', '\\"') for user, word in PASSWORDS.items()}
    users = " ".join(f'user_{user}="{word}"' for user, word in quoted.items())
    return f"{_MODULE} required {users};"


class SecuredBroker(KbrokerProcess):
    """`port` is the open listener's, `sasl_port` the other's."""

    def __init__(self, home: Path, settings: dict[str, str] | None = None, **how: Any) -> None:
        base = {
            "listeners": "PLAINTEXT://127.0.0.1:0,SASL://127.0.0.1:0",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL:SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.sasl.plain.sasl.jaas.config": plain_jaas(),
            "kbroker.durability": "page-cache",
        }
        super().__init__(home, base | (settings or {}), **how)
        self.sasl_port = 0

    def command(self) -> list[str]:
        """Without --listen, which is about one listener."""
        words = super().command()
        at = words.index("--listen")
        return words[:at] + words[at + 2 :]

    def is_ready(self) -> bool:
        """Both listeners are told."""
        found = _BOUND.search(self.log_text()[self._log_start :])
        if found is None:
            return False
        self.sasl_port = int(found[1])
        return super().is_ready()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def sasl_bootstrap(self) -> str:
        """Where one has to say who one is."""
        return f"127.0.0.1:{self.sasl_port}"

    def add_user(self, name: str, password: str) -> None:
        """A user of both SCRAM mechanisms."""
        with Admin(bootstrap_servers=self.bootstrap) as admin:
            for mechanism in SCRAM:
                admin.alter_scram_users([ScramUpsertion(name, mechanism, password)]).checked()


def handshake(one: WireConnection, mechanism: str, version: int = 1) -> Any:
    """The answer to a SaslHandshake."""
    return one.call(HANDSHAKE, version, {"mechanism": mechanism})


def step(one: WireConnection, message: bytes, version: int = 2) -> Any:
    """The answer to a SaslAuthenticate."""
    return one.call(AUTHENTICATE, version, {"auth_bytes": message})


def plain(one: WireConnection, user: str, password: str, version: int = 2) -> Any:
    """The whole exchange."""
    assert handshake(one, "PLAIN")["error_code"] == 0
    return step(one, f"\0{user}\0{password}".encode(), version)


def scram(one: WireConnection, mechanism: str, user: str, password: str) -> Any:
    """The whole exchange; the broker's signature is verified."""
    client = Scram(SCRAM[mechanism], user, password)
    assert handshake(one, mechanism)["error_code"] == 0
    told = step(one, client.first())
    told = step(one, client.final(told["auth_bytes"]))
    if told["error_code"] == 0:
        client.verify(told["auth_bytes"])
    return told
