"""Who the owner of a client's certificate is: the control thread's half."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.api import client_certificates
from kbroker.security import der
from kbroker.security.principals import Principal
from kbroker.security.tls import TlsListeners
from tests.support.certificates import Authority
from tests.support.control import ControlPlane, FakeRequest

RULES = r"RULE:^CN=([a-z]+),OU=(\w+)$/$2-$1/U, RULE:^CN=(.*?),.*$/$1/"


def name(**parts: str) -> bytes:
    """name(CN="alice", OU="ops"): as RFC 2253 writes it, so the last part comes first in DER."""
    kinds = {"CN": "2.5.4.3", "OU": "2.5.4.11", "O": "2.5.4.10"}
    return der.put(
        der.SEQUENCE,
        *(
            der.put(
                der.SET,
                der.put(
                    der.SEQUENCE,
                    der.put_oid(kinds[kind]),
                    der.put(der.UTF8_STRING, text.encode()),
                ),
            )
            for kind, text in reversed(parts.items())
        ),
    )


@pytest.fixture
def control(tmp_path: Path) -> Iterator[ControlPlane]:
    store = Authority(tmp_path / "authority").issue("broker").pem
    plane = ControlPlane(
        tmp_path / "data",
        {
            "listeners": "SSL://localhost:9092,MAPPED://localhost:9093",
            "listener.security.protocol.map": "SSL:SSL,MAPPED:SSL",
            "ssl.keystore.location": str(store),
            "listener.name.mapped.ssl.principal.mapping.rules": RULES,
        },
    )
    services = plane.services
    services.tls = TlsListeners(plane.config, plane.config.listeners, lambda *_: None)
    yield plane
    plane.close()


def asked(control: ControlPlane, listener: str, subject: bytes) -> FakeRequest:
    request = FakeRequest(-2, 0, subject, listener)
    client_certificates.identify(request, control.services)
    return request


@pytest.mark.parametrize(
    ("listener", "subject", "user"),
    [
        ("SSL", name(CN="alice", OU="ops"), "CN=alice,OU=ops"),
        ("SSL", name(CN="a,b", O="x=y"), r"CN=a\,b,O=x\=y"),
        ("SSL", der.put(der.SEQUENCE), ""),
        ("MAPPED", name(CN="alice", OU="ops"), "OPS-ALICE"),
        ("MAPPED", name(CN="Bob 7", OU="ops", O="x"), "Bob 7"),
    ],
)
def test_users(control: ControlPlane, listener: str, subject: bytes, user: str) -> None:
    request = asked(control, listener, subject)
    principal = control.services.principals.principal(request.principal)
    assert principal == Principal("User", user)
    assert request.answer == b""
    assert not request.closed
    assert asked(control, listener, subject).principal == request.principal


@pytest.mark.parametrize("subject", [name(O="no rule fits"), b"", b"\x30\x05", b"\x13\x01a"])
def test_nobody_is_let_in(control: ControlPlane, subject: bytes) -> None:
    request = asked(control, "MAPPED", subject)
    assert request.closed
    assert request.principal == 0
