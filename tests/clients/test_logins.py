"""Who clients say they are: Java, librdkafka, kafka-python, aiokafka and our own log in to kbroker
with each mechanism, and are refused with a wrong password."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as RdPartition
from confluent_kafka.admin import AdminClient as RdAdmin
from kafka import KafkaConsumer, KafkaProducer, TopicPartition

from kbroker.client import Admin
from kbroker.client.admin_users import ScramUpsertion
from kbroker.client.errors import AuthenticationError
from tests.support import wire
from tests.support.java import java_command
from tests.support.kafka import tool_output
from tests.support.sasl import SecuredBroker
from tests.support.secured_kafka import PASSWORDS
from tests.support.waits import wait_for

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", PASSWORDS["alice"]
TOPIC = "logins"
MODULES = {"PLAIN": "plain.PlainLoginModule", "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule"}
SESSION_MS = 4000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    unsigned = "org.apache.kafka.common.security.oauthbearer.internals.unsecured."
    handler = f"{unsigned}OAuthBearerUnsecuredValidatorCallbackHandler"
    one = SecuredBroker(
        tmp_path_factory.mktemp("logins"),
        {
            "connections.max.reauth.ms": str(SESSION_MS),
            "delegation.token.secret.key": "hush",
            "sasl.enabled.mechanisms": ",".join((*MECHANISMS, "OAUTHBEARER")),
            "listener.name.sasl.oauthbearer.sasl.server.callback.handler.class": handler,
        },
    )
    one.start()
    try:
        one.add_user(USER, PASSWORD)
        wire.create_topic(one.port, TOPIC)
        yield one
    finally:
        one.kill()


def settings_of(broker: SecuredBroker, mechanism: str, password: str) -> dict[str, str]:
    """By librdkafka's and our own names."""
    return {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_own(broker: SecuredBroker, mechanism: str) -> None:
    with Admin(settings_of(broker, mechanism, PASSWORD)) as admin:
        assert admin.create_token().owner == f"User:{USER}"
    with (
        Admin(settings_of(broker, mechanism, "wrong")) as admin,
        pytest.raises(AuthenticationError, match="SASL_AUTHENTICATION_FAILED"),
    ):
        admin.describe_cluster()


def test_our_own_with_a_token(broker: SecuredBroker) -> None:
    with Admin(settings_of(broker, "PLAIN", PASSWORD)) as admin:
        token = admin.create_token()
        assert admin.renew_token(token.hmac) > 0
        assert [one.token_id for one in admin.describe_tokens()].count(token.token_id) == 1
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{token.token_id}" password="{token.password}" tokenauth=true;'
    )
    base = {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": jaas,
    }
    with Admin(base) as admin:
        assert admin.describe_cluster().brokers
    with Admin(settings_of(broker, "PLAIN", PASSWORD)) as admin:
        admin.expire_token(token.hmac)
    with Admin(base) as admin, pytest.raises(AuthenticationError):
        admin.describe_cluster()


def test_our_own_users(broker: SecuredBroker) -> None:
    """Made over the listener that asks, seen over the one that does not."""
    with Admin(settings_of(broker, "PLAIN", PASSWORD)) as admin:
        admin.alter_scram_users([ScramUpsertion("odd, = \u00fc\u4e16", "SCRAM-SHA-256", "pw")])
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        assert "odd, = \u00fc\u4e16" in admin.describe_scram_users()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_librdkafka(broker: SecuredBroker, mechanism: str) -> None:
    """With PLAIN over several sessions, on the same connection."""
    settings = settings_of(broker, mechanism, PASSWORD)
    failed: list[Any] = []
    producer = Producer(settings | {"linger.ms": 1, "error_cb": failed.append})
    consumer = Consumer(settings | {"group.id": "unused", "error_cb": failed.append})
    consumer.assign([RdPartition(TOPIC, 0, 0)])
    for _ in range(4 if mechanism == "PLAIN" else 1):
        told: list[Any] = []
        producer.produce(TOPIC, b"x", on_delivery=lambda error, _, told=told: told.append(error))
        assert producer.flush(60) == 0 and told == [None]
        wait_for("a record", lambda: consumer.poll(1), 60)
        wait_for("some of the session's life", lambda: not producer.poll(1.5), 60)
    consumer.close()
    assert not failed
    with pytest.raises(KafkaException):
        RdAdmin(settings_of(broker, mechanism, "wrong")).list_topics(timeout=3)


def test_librdkafka_and_an_unsigned_token(broker: SecuredBroker) -> None:
    admin = RdAdmin(
        {
            "bootstrap.servers": broker.sasl_bootstrap,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "enable.sasl.oauthbearer.unsecure.jwt": True,
            "sasl.oauthbearer.config": "principal=carol",
        }
    )
    admin.poll(1)
    assert TOPIC in admin.list_topics(timeout=60).topics


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python(broker: SecuredBroker, mechanism: str) -> None:
    settings = {
        "bootstrap_servers": broker.sasl_bootstrap,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
        "sasl_plain_username": USER,
        "sasl_plain_password": PASSWORD,
    }
    producer = KafkaProducer(**settings)
    offset = producer.send(TOPIC, b"python").get(60).offset
    producer.close()
    consumer = KafkaConsumer(**settings, group_id=None)
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek(TopicPartition(TOPIC, 0), offset)
    assert wait_for("a record", lambda: consumer.poll(1000), 60)
    consumer.close()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka(broker: SecuredBroker, mechanism: str) -> None:
    async def run() -> None:
        producer = AIOKafkaProducer(
            bootstrap_servers=broker.sasl_bootstrap, security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism, sasl_plain_username=USER, sasl_plain_password=PASSWORD,
        )  # fmt: skip
        await producer.start()
        try:
            await asyncio.wait_for(producer.send_and_wait(TOPIC, b"aio"), 60)
        finally:
            await producer.stop()

    asyncio.run(run())


def java_settings(broker: SecuredBroker, mechanism: str, options: str) -> str:
    module = MODULES.get(mechanism, "scram.ScramLoginModule")
    lines = {
        "bootstrap.servers": broker.sasl_bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f"org.apache.kafka.common.security.{module} required {options};",
    }
    return "".join(f"{name}={value}\n" for name, value in lines.items())


def test_java(broker: SecuredBroker, classes: Path, tmp_path: Path) -> None:
    """Sessions are renewed on the same connection; a wrong password is named."""
    files, wanted = [], []
    for mechanism in MECHANISMS:
        for password, outcome in ((PASSWORD, "ok"), ("wrong", "SaslAuthenticationException")):
            files.append(tmp_path / f"{mechanism}-{outcome}")
            login = f'username="{USER}" password="{password}"'
            files[-1].write_text(java_settings(broker, mechanism, login))
            wanted.append(outcome)
    files.append(tmp_path / "oauth")
    claim = 'unsecuredLoginStringClaim_sub="dave"'
    files[-1].write_text(java_settings(broker, "OAUTHBEARER", claim))
    wanted.append("ok")
    with Admin(settings_of(broker, "PLAIN", PASSWORD)) as admin:
        token = admin.create_token()
    files.append(tmp_path / "token")
    login = f'username="{token.token_id}" password="{token.password}" tokenauth="true"'
    files[-1].write_text(java_settings(broker, "SCRAM-SHA-256", login))
    wanted.append("ok")
    done = subprocess.run(
        java_command("Login", TOPIC, "6000", *map(str, files), classes=classes),
        check=False, capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.stdout.split() == wanted, done.stdout + done.stderr


@pytest.mark.long
def test_kafkas_own_tools(broker: SecuredBroker, tmp_path: Path) -> None:
    """ConfigCommand makes and deletes users; DelegationTokenCommand makes and ends tokens."""
    file = tmp_path / "client.properties"
    login = f'username="{USER}" password="{PASSWORD}"'
    file.write_text(java_settings(broker, "SCRAM-SHA-512", login))
    server = ("--bootstrap-server", broker.sasl_bootstrap, "--command-config", str(file))
    named = (*server, "--entity-type", "users", "--entity-name", "erin")
    tool_output("configs", *named, "--alter", "--add-config", "SCRAM-SHA-256=[password=pw]")
    with Admin(settings_of(broker, "PLAIN", PASSWORD)) as admin:
        assert [one.iterations for one in admin.describe_scram_users(["erin"])["erin"]] == [4096]
    erin = settings_of(broker, "SCRAM-SHA-256", "pw") | {"sasl.username": "erin"}
    with Admin(erin) as admin:
        assert admin.create_token().owner == "User:erin"
    tool_output("configs", *named, "--alter", "--delete-config", "SCRAM-SHA-256")
    with Admin(erin) as admin, pytest.raises(AuthenticationError):
        admin.describe_cluster()
    made = tool_output(
        "delegation-tokens", *server, "--create", "--max-life-time-period", "-1",
        "--renewer-principal", "User:bob",
    )  # fmt: skip
    row = next(line.split() for line in made.splitlines() if "User:alice" in line)
    proof = row[1]
    tool_output("delegation-tokens", *server, "--renew", "--renew-time-period", "-1",
                "--hmac", proof)  # fmt: skip
    told = tool_output("delegation-tokens", *server, "--describe", "--owner-principal",
                       "User:alice")  # fmt: skip
    assert proof in told
    tool_output("delegation-tokens", *server, "--expire", "--expiry-time-period", "-1",
                "--hmac", proof)  # fmt: skip
    told = tool_output("delegation-tokens", *server, "--describe")
    assert proof not in told
