"""TLS listeners with real clients: what is sent comes back, with a certificate and without."""

from __future__ import annotations

import asyncio
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioPartition
from confluent_kafka import Consumer, Producer, TopicPartition
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition

from kbroker.client import Admin
from kbroker.client import Consumer as OwnConsumer
from kbroker.client import Producer as OwnProducer
from kbroker.client.errors import AuthenticationError
from tests.clients.data import Message, check_read, numbered
from tests.support import wire
from tests.support.certificates import PASSWORD, Authority, Identity, openssl
from tests.support.java import java_command
from tests.support.kbroker import KbrokerProcess, kbroker_is_built
from tests.support.sasl import plain_jaas
from tests.support.secured_kafka import PASSWORDS

SENT = numbered(1000)
LISTENERS = ("SSL", "MUTUAL")
LONG = pytest.mark.long


class Secured(NamedTuple):
    broker: KbrokerProcess
    authority: Authority
    client: Identity

    def bootstrap(self, listener: str) -> str:
        return f"localhost:{self.broker.ports[listener]}"


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """SSL asks for no certificate and has its key in PEM, MUTUAL wants one and has PKCS #12, LOGIN
    asks for a password."""
    assert kbroker_is_built(), "make build"
    authority = Authority(tmp_path_factory.mktemp("authority"))
    server = authority.issue("broker")
    mutual = "listener.name.mutual.ssl"
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,LOGIN:SASL_SSL",
        "delegation.token.secret.key": "hush",
        "listener.name.login.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.login.plain.sasl.jaas.config": plain_jaas(),
        "ssl.keystore.location": str(server.pem),
        "ssl.truststore.location": str(authority.certificate),
        f"{mutual}.client.auth": "required",
        f"{mutual}.keystore.location": str(server.p12),
        f"{mutual}.keystore.password": PASSWORD,
    }
    listeners = (*LISTENERS, "LOGIN")
    broker = KbrokerProcess(tmp_path_factory.mktemp("broker"), settings, listeners=listeners)
    broker.start()
    try:
        yield Secured(broker, authority, authority.issue("client"))
    finally:
        broker.kill()


@pytest.fixture(params=LISTENERS)
def listener(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def created(secured: Secured, topic: str) -> str:
    wire.create_topic(secured.broker.port, topic, 2)
    return topic


def librdkafka(secured: Secured, listener: str) -> dict[str, str]:
    settings = {
        "bootstrap.servers": secured.bootstrap(listener),
        "security.protocol": "SSL",
        "ssl.ca.location": str(secured.authority.certificate),
    }
    if listener == "MUTUAL":
        settings["ssl.keystore.location"] = str(secured.client.p12)
        settings["ssl.keystore.password"] = PASSWORD
    return settings


def python_context(secured: Secured) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(secured.authority.certificate))
    context.load_cert_chain(secured.client.pem)
    return context


def test_confluent_kafka(secured: Secured, listener: str, created: str) -> None:
    base = librdkafka(secured, listener)
    producer = Producer(base | {"enable.idempotence": "true", "linger.ms": "1"})
    for key, value in SENT:
        producer.produce(created, value, key)
    assert producer.flush(60) == 0
    consumer = Consumer(base | {"group.id": created, "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(created, index, 0) for index in range(2)])
    got = []
    while len(got) < len(SENT):
        for one in consumer.consume(500, 60):
            assert one.error() is None
            got.append(Message(one.partition(), one.offset(), one.key(), one.value()))
    consumer.close()
    check_read(SENT, got)


def test_kafka_python(secured: Secured, listener: str, created: str) -> None:
    base = {
        "bootstrap_servers": secured.bootstrap(listener),
        "security_protocol": "SSL",
        "ssl_context": python_context(secured),
    }
    producer = KafkaProducer(**base, acks="all")
    for key, value in SENT:
        producer.send(created, key=key, value=value)
    producer.flush(timeout=60)
    producer.close()
    consumer = KafkaConsumer(**base, group_id=None, auto_offset_reset="earliest")
    parts = [PythonPartition(created, index) for index in range(2)]
    consumer.assign(parts)
    consumer.seek_to_beginning(*parts)
    got = []
    while len(got) < len(SENT):
        for records in consumer.poll(timeout_ms=1000).values():
            got += [Message(r.partition, r.offset, r.key, r.value) for r in records]
    consumer.close()
    check_read(SENT, got)


def test_aiokafka(secured: Secured, listener: str, created: str) -> None:
    base = {
        "bootstrap_servers": secured.bootstrap(listener),
        "security_protocol": "SSL",
        "ssl_context": python_context(secured),
    }

    async def run() -> list[Message]:
        async with AIOKafkaProducer(**base, linger_ms=1) as producer:
            sent = [await producer.send(created, value, key=key) for key, value in SENT]
            await asyncio.gather(*sent)
        got: list[Message] = []
        consumer = AIOKafkaConsumer(**base, group_id=None)
        async with consumer:
            parts = [AioPartition(created, index) for index in range(2)]
            consumer.assign(parts)
            await consumer.seek_to_beginning(*parts)
            while len(got) < len(SENT):
                for records in (await consumer.getmany(timeout_ms=1000)).values():
                    got += [Message(r.partition, r.offset, r.key, r.value) for r in records]
        return got

    check_read(SENT, asyncio.run(asyncio.wait_for(run(), 120)))


@pytest.mark.parametrize("version", ["TLSv1.2", pytest.param("TLSv1.3", marks=LONG)])
def test_own_client(secured: Secured, listener: str, created: str, version: str) -> None:
    base = {
        "bootstrap.servers": secured.bootstrap(listener),
        "security.protocol": "SSL",
        "ssl.enabled.protocols": version,
        "ssl.truststore.location": str(secured.authority.certificate),
        "ssl.keystore.location": str(secured.client.pem),
    }
    with OwnProducer(base) as producer:
        for key, value in SENT:
            producer.send(created, value, key=key)
        producer.flush()
    got = []
    with OwnConsumer(base | {"auto.offset.reset": "earliest"}) as consumer:
        consumer.assign([(created, 0), (created, 1)])
        while len(got) < len(SENT):
            for r in consumer.poll(60):
                got.append(Message(r.partition, r.offset, r.key, r.value))
    check_read(SENT, got)


def java_settings(secured: Secured, folder: Path, **further: str) -> Path:
    """A client of Java, whose trust store is PEM and whose key store is PKCS #12."""
    settings = {
        "security.protocol": "SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(secured.authority.certificate),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": str(secured.client.p12),
        "ssl.keystore.password": PASSWORD,
        "ssl.key.password": PASSWORD,
    } | {name.replace("_", "."): value for name, value in further.items()}
    path = folder / "client.properties"
    path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    return path


@pytest.mark.parametrize("version", [pytest.param("TLSv1.2", marks=LONG), "TLSv1.3"])
def test_java(  # noqa: PLR0917
    secured: Secured, listener: str, created: str, classes: Path, version: str, tmp_path: Path
) -> None:
    file = java_settings(secured, tmp_path, ssl_enabled_protocols=version)
    arguments = (secured.bootstrap(listener), created, "2", "2000", "lz4", str(file))
    done = subprocess.run(
        java_command("RoundTrip", *arguments, classes=classes),
        check=False, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "sent 2000 read 2000"


def login_settings(secured: Secured, password: str) -> dict[str, str]:
    return librdkafka(secured, "LOGIN") | {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "alice",
        "sasl.password": password,
    }


def test_who_a_client_is(secured: Secured) -> None:
    """By its certificate, or over TLS by its password."""
    mutual = librdkafka(secured, "MUTUAL")
    with Admin(mutual) as admin:
        assert admin.create_token().owner == "User:CN=client"
    with Admin(login_settings(secured, PASSWORDS["alice"])) as admin:
        assert admin.create_token().owner == "User:alice"
    with (
        Admin(login_settings(secured, "wrong")) as admin,
        pytest.raises(AuthenticationError),
    ):
        admin.describe_cluster()


def test_confluent_kafka_logs_in(secured: Secured, created: str) -> None:
    base = login_settings(secured, PASSWORDS["alice"])
    producer = Producer(base)
    for key, value in SENT:
        producer.produce(created, value, key)
    assert producer.flush(60) == 0


def test_java_logs_in(secured: Secured, created: str, classes: Path, tmp_path: Path) -> None:
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    word = PASSWORDS["alice"].replace("\\", "\\\\").replace('"', '\\\\"')
    file = java_settings(
        secured, tmp_path, security_protocol="SASL_SSL", sasl_mechanism="PLAIN",
        sasl_jaas_config=f'{module} required username="alice" password="{word}";',
    )  # fmt: skip
    arguments = (secured.bootstrap("LOGIN"), created, "2", "500", "none", str(file))
    done = subprocess.run(
        java_command("RoundTrip", *arguments, classes=classes),
        check=False, capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def s_client(secured: Secured, listener: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        ["openssl", "s_client", "-connect", secured.bootstrap(listener), "-verify_return_error",
         "-CAfile", str(secured.authority.certificate), *map(str, arguments)],
        check=False, input="Q\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_openssl(secured: Secured) -> None:
    """Versions, ciphers, the chain, and no renegotiation."""
    openssl("version")
    for flag, version in (("-tls1_2", "TLSv1.2"), ("-tls1_3", "TLSv1.3")):
        said = s_client(secured, "SSL", flag)
        assert "Verify return code: 0 (ok)" in said
        assert version in said
    assert "ECDHE-ECDSA-AES128-GCM-SHA256" in s_client(
        secured, "SSL", "-tls1_2", "-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256"
    )
    for old in ("-tls1", "-tls1_1"):
        assert "Cipher is (NONE)" in s_client(secured, "SSL", old, "-cipher", "ALL:@SECLEVEL=0")
    assert "Secure Renegotiation IS NOT supported" not in s_client(secured, "SSL", "-tls1_2")
    done = subprocess.run(
        ["openssl", "s_client", "-connect", secured.bootstrap("SSL"), "-tls1_2"],
        check=False, input="R\n", capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert "no renegotiation" in done.stdout + done.stderr
