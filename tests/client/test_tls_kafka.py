"""TLS and SASL over TLS against Apache Kafka: connections, and links handed over to a loop."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kbroker.client.address import Address
from kbroker.client.cluster import Cluster
from kbroker.client.config import admin_config
from kbroker.client.connection import Connection
from kbroker.client.errors import AuthenticationError, KafkaError, TlsError
from kbroker.client.tls import tls_of
from kbroker.ext.client_loop import ClientLoop
from kbroker.protocol import ApiKey
from tests.support.certificates import PASSWORD, Authority, Identity
from tests.support.kafka import KafkaProcess
from tests.support.waits import free_ports

pytestmark = pytest.mark.long

LISTENERS = ("GOOD", "MUTUAL", "ELSEWHERE", "EXPIRED", "LOGIN")
METADATA_BODY = b"\x01\x00\x00\x00\x00"


class Secured(NamedTuple):
    authority: Authority
    client: Identity
    ports: dict[str, int]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A Kafka with a listener of each kind, and the CA of its certificates."""
    authority = Authority(tmp_path_factory.mktemp("authority"))
    stores = {
        "GOOD": authority.issue("broker"),
        "MUTUAL": authority.issue("mutual"),
        "ELSEWHERE": authority.issue("elsewhere", "DNS:elsewhere"),
        "EXPIRED": authority.issue("expired", days=-1),
        "LOGIN": authority.issue("login"),
    }
    ports = dict(zip(LISTENERS, free_ports(len(LISTENERS)), strict=True))
    broker = KafkaProcess(tmp_path_factory.mktemp("secured"))
    listeners = [broker.properties()["listeners"]]
    protocols = ["PLAINTEXT:PLAINTEXT", "CONTROLLER:PLAINTEXT", "LOGIN:SASL_SSL"]
    for name, port in ports.items():
        listeners.append(f"{name}://localhost:{port}")
        if name != "LOGIN":
            protocols.append(f"{name}:SSL")
        prefix = f"listener.name.{name.lower()}.ssl"
        broker.settings |= {
            f"{prefix}.keystore.type": "PEM",
            f"{prefix}.keystore.location": str(stores[name].pem),
            f"{prefix}.truststore.type": "PEM",
            f"{prefix}.truststore.location": str(authority.certificate),
        }
    login = "listener.name.login"
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    broker.settings |= {
        "listeners": ",".join(listeners),
        "listener.security.protocol.map": ",".join(protocols),
        "listener.name.mutual.ssl.client.auth": "required",
        f"{login}.sasl.enabled.mechanisms": "PLAIN",
        f"{login}.plain.sasl.jaas.config": f'{module} required user_ada="engine";',
    }
    broker.start()
    try:
        yield Secured(authority, authority.issue("client"), ports)
    finally:
        broker.kill()


def config(secured: Secured, listener: str, settings: dict[str, Any]) -> Any:
    base: dict[str, Any] = {
        "bootstrap.servers": f"localhost:{secured.ports[listener]}",
        "security.protocol": "SSL",
        "ssl.truststore.location": str(secured.authority.certificate),
    }
    return admin_config(base | settings, {})


def ask(secured: Secured, listener: str, **settings: Any) -> str:
    """Metadata over a connection, then over the link that it becomes; the version of TLS."""
    made = tls_of(config(secured, listener, settings))
    connection = Connection(Address("localhost", secured.ports[listener]), tls=made)
    assert connection._channel is not None
    version = connection._channel.version
    assert connection.call(ApiKey.METADATA, {"topics": None}).cluster_id
    loop = ClientLoop()
    loop.start()
    try:
        link = connection.hand_over(loop)
        for _ in range(3):
            said = loop.request(link, ApiKey.METADATA, 9, METADATA_BODY, 10.0)
            assert said[:5] == b"\x00\x00\x00\x00\x02"
    finally:
        loop.close()
    return version


def test_tls(secured: Secured) -> None:
    assert ask(secured, "GOOD") == "TLSv1.3"
    older = {"ssl.enabled.protocols": "TLSv1.2"}
    assert ask(secured, "GOOD", **older) == "TLSv1.2"
    suite = {"ssl.cipher.suites": "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"}
    assert ask(secured, "GOOD", **suite) == "TLSv1.2"


@pytest.mark.parametrize("protocol", ["TLSv1.2", "TLSv1.3"])
def test_mutual_tls(secured: Secured, protocol: str, tmp_path: Path) -> None:
    own: dict[str, Any] = {"ssl.enabled.protocols": protocol}
    client = secured.client
    assert ask(secured, "MUTUAL", **own, **{"ssl.keystore.location": str(client.pem)}) == protocol
    store = {"ssl.keystore.location": str(client.p12), "ssl.keystore.password": PASSWORD}
    assert ask(secured, "MUTUAL", **own, **store) == protocol
    with pytest.raises(TlsError, match=r"certificate required|bad certificate|closed"):
        ask(secured, "MUTUAL", **own)
    stranger = Authority(tmp_path, "nobody").issue("stranger")
    with pytest.raises(TlsError, match=r"unknown|bad certificate|closed"):
        ask(secured, "MUTUAL", **own, **{"ssl.keystore.location": str(stranger.pem)})


def test_certificates_that_are_refused(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(TlsError, match="/CN=elsewhere: hostname mismatch"):
        ask(secured, "ELSEWHERE")
    unnamed = {"ssl.endpoint.identification.algorithm": ""}
    assert ask(secured, "ELSEWHERE", **unnamed) == "TLSv1.3"
    with pytest.raises(TlsError, match="/CN=expired: certificate has expired"):
        ask(secured, "EXPIRED")
    other = Authority(tmp_path, "other")
    with pytest.raises(TlsError, match="location must hold the certificate of its CA"):
        ask(secured, "GOOD", **{"ssl.truststore.location": str(other.certificate)})


def test_sasl_over_tls_through_a_cluster(secured: Secured) -> None:
    login = {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "ada",
        "sasl.password": "engine",
    }  # fmt: skip
    with Cluster.of(config(secured, "LOGIN", login)) as cluster:
        assert cluster.topics() == []
    wrong = login | {"sasl.password": "loom"}
    with (
        Cluster.of(config(secured, "LOGIN", wrong)) as cluster,
        pytest.raises(AuthenticationError),
    ):
        cluster.topics()
    plain = {"security.protocol": "PLAINTEXT"}
    with (
        Cluster.of(config(secured, "GOOD", plain | {"default.api.timeout.ms": "2000"})) as cluster,
        pytest.raises(KafkaError),
    ):
        cluster.topics()
