"""OAUTHBEARER with tokens that a key of a file has signed: Java, librdkafka, kafka-python, aiokafka
and our own log in to kbroker, as who the token says; with a token of another key none gets in."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioKafkaError
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka import TopicPartition as RdPartition
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from kbroker.client import Admin
from kbroker.client.errors import AuthenticationError
from kbroker.client.oauth import Token
from tests.support import guarded as g
from tests.support import wire
from tests.support.guarded import acl
from tests.support.java import java_command
from tests.support.sasl import SecuredBroker
from tests.support.signed import Signer
from tests.support.waits import wait_for

TOPIC, GROUP, USER = "signed", "readers", "alice"
LIFE_S = 3600
REFUSED = "a signature of somebody else"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("signed-tokens")


@pytest.fixture(scope="module")
def signer(folder: Path) -> Signer:
    """The one whose key the broker knows."""
    return Signer(folder, "RS256")


@pytest.fixture(scope="module")
def good(signer: Signer) -> str:
    return signer.token(claims())


@pytest.fixture(scope="module")
def bad(folder: Path) -> str:
    """Of another key that says it is the one."""
    (folder / "other").mkdir()
    return Signer(folder / "other", "RS256").token(claims())


def claims() -> dict[str, Any]:
    now_s = int(time.time())
    return {"sub": USER, "iat": now_s - 10, "exp": now_s + LIFE_S, "aud": "kafka", "iss": "us"}


@pytest.fixture(scope="module")
def broker(folder: Path, signer: Signer) -> Iterator[SecuredBroker]:
    """alice may use a topic and a group, nobody else anything: who is served is alice."""
    keys = folder / "keys.json"
    keys.write_text(json.dumps({"keys": [signer.jwk()]}))
    bearer = "listener.name.sasl.oauthbearer.sasl.oauthbearer"
    settings = {
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{bearer}.jwks.endpoint.url": f"file://{keys}",
        f"{bearer}.expected.audience": "kafka",
        f"{bearer}.expected.issuer": "us",
        "authorizer.class.name": "kbroker",
        "super.users": g.NOBODY,
    }
    with SecuredBroker(folder / "broker", settings) as one:
        wire.create_topic(one.port, TOPIC)
        g.create(one.port, [
            acl(kind, name, g.ALL, principal=f"User:{USER}", host="*")
            for kind, name in ((g.TOPIC, TOPIC), (g.GROUP, GROUP))
        ])  # fmt: skip
        yield one


def test_our_own(broker: SecuredBroker, good: str, bad: str) -> None:
    def admin(token: str) -> Admin:
        return Admin(
            bootstrap_servers=broker.sasl_bootstrap, security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauthbearer_token_callback=lambda: Token(token, time.time() + LIFE_S),
        )  # fmt: skip

    with admin(good) as one:
        assert [info.name for info in one.list_topics()] == [TOPIC]
    with admin(bad) as one, pytest.raises(AuthenticationError):
        one.list_topics()


def test_librdkafka(broker: SecuredBroker, good: str, bad: str) -> None:
    def settings(token: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": broker.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "oauth_cb": lambda _: (token, time.time() + LIFE_S),
        }  # fmt: skip

    told: list[Any] = []
    producer = Producer(settings(good))
    producer.produce(TOPIC, b"rd", on_delivery=lambda error, _: told.append(error))
    assert producer.flush(60) == 0 and told == [None]
    consumer = Consumer(settings(good) | {"group.id": GROUP})
    consumer.assign([RdPartition(TOPIC, 0, 0)])
    assert wait_for("a record", lambda: consumer.poll(1), 60).error() is None
    consumer.close()
    failed = set[str]()
    other = Producer(settings(bad) | {"error_cb": lambda error: failed.add(error.name())})
    wait_for("the refusal", lambda: other.poll(0.1) or "_AUTHENTICATION" in failed, 60)
    with pytest.raises(KafkaException):
        other.list_topics(timeout=1)


class PythonTokens(AbstractTokenProvider):  # type: ignore[misc]
    """What kafka-python asks."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def token(self) -> str:
        return self._token


def test_kafka_python(broker: SecuredBroker, good: str, bad: str) -> None:
    def settings(token: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": broker.sasl_bootstrap, "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": PythonTokens(token),
        }  # fmt: skip

    producer = KafkaProducer(**settings(good))
    offset = producer.send(TOPIC, b"python").get(60).offset
    producer.close()
    consumer = KafkaConsumer(**settings(good), group_id=None)
    consumer.assign([TopicPartition(TOPIC, 0)])
    consumer.seek(TopicPartition(TOPIC, 0), offset)
    assert wait_for("a record", lambda: consumer.poll(1000), 60)
    consumer.close()

    def is_refused() -> bool:
        """It does not tell why, and tries again: the broker tells, some times a second."""
        before = broker.log_text().count(REFUSED)
        with pytest.raises(KafkaError):
            KafkaProducer(**settings(bad), bootstrap_timeout_ms=3000)
        return broker.log_text().count(REFUSED) > before

    wait_for("the refusal", is_refused, 120)


class AioTokens(AioTokenProvider):  # type: ignore[misc]
    """What aiokafka asks."""

    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def test_aiokafka(broker: SecuredBroker, good: str, bad: str) -> None:
    """It takes the first answer to a refused token for a login, and is closed for what it asks."""

    def settings(token: str) -> dict[str, Any]:
        return {
            "bootstrap_servers": broker.sasl_bootstrap, "security_protocol": "SASL_PLAINTEXT",
            "sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": AioTokens(token),
        }  # fmt: skip

    async def run() -> None:
        async with AIOKafkaProducer(**settings(good)) as producer:
            await asyncio.wait_for(producer.send_and_wait(TOPIC, b"aio"), 60)
        consumer = AIOKafkaConsumer(TOPIC, **settings(good), auto_offset_reset="earliest")
        async with consumer:
            assert (await asyncio.wait_for(consumer.getone(), 60)).value
        refused = AIOKafkaProducer(**settings(bad))
        try:
            with pytest.raises(AioKafkaError):
                await asyncio.wait_for(refused.start(), 60)
        finally:
            await refused.stop()

    asyncio.run(run())


def test_java(broker: SecuredBroker, good: str, bad: str, classes: Path, tmp_path: Path) -> None:
    """Tokens come out of files, as Kafka's own retriever of them reads them."""
    package = "org.apache.kafka.common.security.oauthbearer"
    files, urls = [], []
    for name, token in (("good", good), ("bad", bad)):
        (tmp_path / f"{name}.jwt").write_text(token)
        urls.append(f"file://{tmp_path / name}.jwt")
        files.append(tmp_path / f"{name}.properties")
        lines = {
            "bootstrap.servers": broker.sasl_bootstrap, "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.jaas.config": f"{package}.OAuthBearerLoginModule required;",
            "sasl.login.callback.handler.class": f"{package}.OAuthBearerLoginCallbackHandler",
            "sasl.oauthbearer.token.endpoint.url": urls[-1],
            "enable.idempotence": "false",
        }  # fmt: skip
        files[-1].write_text("".join(f"{key}={value}\n" for key, value in lines.items()))
    allowed = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={','.join(urls)}"
    done = subprocess.run(
        java_command("Login", TOPIC, "0", *map(str, files), classes=classes),
        check=False, capture_output=True, text=True, timeout=600,
        env=os.environ | {"JAVA_TOOL_OPTIONS": allowed},
    )  # fmt: skip
    wanted = ["ok", "SaslAuthenticationException"]
    assert done.stdout.split() == wanted, done.stdout + done.stderr
