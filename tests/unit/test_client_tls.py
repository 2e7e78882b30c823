"""TLS of the client against Python's own: what is trusted, what is refused and how it is told."""

from __future__ import annotations

import contextlib
import os
import random
import socket
import ssl
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.address import Address
from kbroker.client.config import admin_config
from kbroker.client.errors import ConfigError, KafkaError, TlsError
from kbroker.client.tls import Tls, tls_of
from kbroker.ext.client_loop import ClientLoop
from tests.support.certificates import PASSWORD, Authority, Identity, openssl

VERSIONS = {3: (0, 13)}


@pytest.fixture(scope="module")
def server(authority: Authority) -> Identity:
    return authority.issue("server")


@pytest.fixture(scope="module")
def client(authority: Authority) -> Identity:
    return authority.issue("client")


def tls(**settings: Any) -> Tls:
    made = tls_of(
        admin_config({"bootstrap.servers": "localhost:1", "security.protocol": "SSL"}, settings)
    )
    assert made is not None
    return made


def echo(peer: socket.socket) -> None:
    """Answers each request with its own body."""
    while head := peer.recv(4):
        (size,) = struct.unpack(">i", head)
        frame = b""
        while len(frame) < size:
            frame += peer.recv(size - len(frame))
        body = frame[8 + 2 + 7 + 1 :]
        peer.sendall(struct.pack(">i", 5 + len(body)) + frame[4:8] + b"\x00" + body)


@contextlib.contextmanager
def listening(
    identity: Identity, *, mutual: Authority | None = None, highest: str = "TLSv1_3"
) -> Iterator[Address]:
    """A server that echoes requests, one connection after another."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(identity.pem)
    context.maximum_version = ssl.TLSVersion[highest]
    if mutual is not None:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(mutual.certificate)
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        with contextlib.suppress(OSError):
            while True:
                peer, _ = listener.accept()
                with contextlib.suppress(OSError), context.wrap_socket(peer, server_side=True) as s:
                    echo(s)
                peer.close()

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield Address("localhost", listener.getsockname()[1])
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(10)
        assert not thread.is_alive()


def talk(made: Tls, address: Address, host: str = "localhost") -> str:
    """One request and its answer; the version of TLS."""
    with socket.create_connection(("127.0.0.1", address.port), 10) as connected:
        channel = made.open(connected, Address(host, address.port), 10)
        request = struct.pack(">ihhih7sB", 22, 3, 9, 1, 7, b"kbroker", 0) + b"body"
        channel.sendall(request, 10)
        into = bytearray(100)
        assert channel.recv_into(into, 10) == 13
        assert into[9:13] == b"body"
        version = channel.version
        channel.close()
        return version


def test_versions_and_ciphers(authority: Authority, server: Identity) -> None:
    ca = str(authority.certificate)
    with listening(server) as address:
        assert talk(tls(ssl_truststore_location=ca), address) == "TLSv1.3"
        assert talk(tls(ssl_ca_location=ca), address, "127.0.0.1") == "TLSv1.3"
        older = tls(ssl_ca_location=ca, ssl_enabled_protocols="TLSv1.2")
        assert talk(older, address) == "TLSv1.2"
        suites = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"
        assert talk(tls(ssl_ca_location=ca, ssl_cipher_suites=suites), address) == "TLSv1.2"
        suites = "TLS_AES_256_GCM_SHA384,ECDHE-ECDSA-AES128-GCM-SHA256"
        assert talk(tls(ssl_ca_location=ca, ssl_cipher_suites=suites), address) == "TLSv1.3"
    with pytest.raises(ConfigError, match=r"ssl\.cipher\.suites: TLS_NONE: "):
        tls(ssl_cipher_suites="TLS_NONE")
    with pytest.raises(ConfigError, match=r"TLSv1\.2 and TLSv1\.3"):
        tls(ssl_enabled_protocols="TLSv1.1")


def test_every_form_of_trust(authority: Authority, server: Identity, tmp_path: Path) -> None:
    store = tmp_path / "trust.p12"
    openssl("pkcs12", "-export", "-nokeys", "-in", authority.certificate, "-out", store,
            "-passout", f"pass:{PASSWORD}")  # fmt: skip
    with listening(server) as address:
        talk(tls(ssl_truststore_certificates=authority.certificate.read_text()), address)
        talk(tls(ssl_truststore_location=str(store), ssl_truststore_password=PASSWORD), address)
    with pytest.raises(ConfigError, match="is the password right"):
        tls(ssl_truststore_location=str(store), ssl_truststore_password="wrong")


def test_a_store_with_the_older_encryption_is_read(
    authority: Authority, server: Identity, tmp_path: Path
) -> None:
    """As OpenSSL 1 and the keytool of Java 8 write it: RC2 and 3DES."""
    store, trust = tmp_path / "old.p12", tmp_path / "trust.p12"
    openssl("pkcs12", "-export", "-legacy", "-inkey", server.key, "-in", server.certificate,
            "-certfile", authority.certificate, "-out", store,
            "-passout", f"pass:{PASSWORD}")  # fmt: skip
    openssl("pkcs12", "-export", "-legacy", "-nokeys", "-in", authority.certificate,
            "-out", trust, "-passout", f"pass:{PASSWORD}")  # fmt: skip
    code = (
        "import sys; from kbroker.ext.tls_context import TlsContext;"
        "data = open(sys.argv[1], 'rb').read(); one = TlsContext(server=True);"
        "one.identity_pkcs12(data, sys.argv[2], 'the store')"
    )

    def read(path: Path, password: str, **environment: str) -> str:
        done = subprocess.run(
            [sys.executable, "-c", code, str(path), password], check=False, capture_output=True,
            text=True, timeout=60, env={**os.environ, **environment},
        )  # fmt: skip
        return done.stderr.strip().rpartition("\n")[2]

    assert read(store, PASSWORD) == ""
    assert "is the password right" in read(store, "wrong")
    missing = read(store, PASSWORD, OPENSSL_MODULES=str(tmp_path))
    assert "legacy provider" in missing and "keytool -importkeystore" in missing
    with listening(server) as address:
        talk(tls(ssl_truststore_location=str(trust), ssl_truststore_password=PASSWORD), address)


def test_a_certificate_that_cannot_be_trusted(
    authority: Authority, server: Identity, tmp_path: Path
) -> None:
    other = Authority(tmp_path, "other")
    with listening(server) as address:
        with pytest.raises(TlsError, match="location must hold") as told:
            talk(tls(ssl_ca_location=str(other.certificate)), address)
        assert "\n" not in str(told.value)
        assert not told.value.retriable
        with pytest.raises(TlsError, match="certificate /CN=server: hostname mismatch"):
            talk(tls(ssl_ca_location=str(authority.certificate)), address, "elsewhere")
        with pytest.raises(TlsError, match="IP address mismatch"):
            talk(tls(ssl_ca_location=str(authority.certificate)), address, "127.0.0.2")
        unnamed = tls(
            ssl_ca_location=str(authority.certificate), ssl_endpoint_identification_algorithm=""
        )
        talk(unnamed, address, "elsewhere")
    with (
        listening(authority.issue("old", days=-1)) as address,
        pytest.raises(TlsError, match="certificate /CN=old: certificate has expired"),
    ):
        talk(tls(ssl_ca_location=str(authority.certificate)), address)


@pytest.mark.parametrize("highest", ["TLSv1_2", "TLSv1_3"])
def test_a_server_that_wants_to_know_us(
    authority: Authority, server: Identity, client: Identity, highest: str, tmp_path: Path
) -> None:
    locked = tmp_path / "locked.key"
    openssl("pkcs8", "-topk8", "-in", client.key, "-out", locked, "-passout", "pass:secret")
    ca = {"ssl_ca_location": str(authority.certificate)}
    chain, key = client.certificate.read_text(), client.key.read_text()
    with listening(server, mutual=authority, highest=highest) as address:
        for own in (
            {"ssl_keystore_location": str(client.pem)},
            {"ssl_keystore_location": str(client.p12), "ssl_keystore_password": PASSWORD},
            {"ssl_keystore_certificate_chain": chain, "ssl_keystore_key": key},
            {"ssl_certificate_location": str(client.certificate), "ssl_key_location": str(locked),
             "ssl_key_password": "secret"},
        ):  # fmt: skip
            talk(tls(**ca, **own), address)
        with pytest.raises((KafkaError, ConnectionError)):
            talk(tls(**ca), address)


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"ssl_ca_location": "{}/none"}, r"ssl\.ca\.location .*/none: No such file"),
        ({"ssl_ca_location": "{}/empty"}, "0 bytes are no key store"),
        ({"ssl_ca_location": "{}/jks"}, "is a JKS key store.*keytool -importkeystore"),
        ({"ssl_ca_location": "{}/der"}, r"is no PKCS #12 file"),
        ({"ssl_ca_location": "{}/text"}, "holds no certificate in PEM form"),
        ({"ssl_ca_location": "{}/second"}, "certificate 2 of 2: "),
        ({"ssl_keystore_location": "{}/text"}, "holds no certificate"),
        ({"ssl_keystore_location": "{}/client.crt"}, "holds no private key"),
        ({"ssl_keystore_location": "{}/client.p12"}, "is the password right"),
        ({"ssl_certificate_location": "{}/client.crt", "ssl_key_location": "{}/locked"},
         r"it is encrypted: give ssl\.key\.password"),
        ({"ssl_certificate_location": "{}/client.crt", "ssl_key_location": "{}/locked",
          "ssl_key_password": "wrong"}, r"ssl\.key\.password is wrong"),
        ({"ssl_certificate_location": "{}/client.crt", "ssl_key_location": "{}/client.key.other"},
         "values mismatch"),
        ({"ssl_endpoint_identification_algorithm": "ldaps"}, "must be https or empty"),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_used(
    authority: Authority, client: Identity, tmp_path: Path, settings: dict[str, str], told: str
) -> None:
    for file in client.key.parent.glob("client.*"):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    (tmp_path / "der").write_bytes(b"\x30\x82\x01\x00 and so on")
    (tmp_path / "text").write_bytes(b"nothing of the kind")
    broken = authority.certificate.read_text().replace("M", "-", 3)
    (tmp_path / "second").write_text(authority.certificate.read_text() + broken)
    openssl("pkcs8", "-topk8", "-in", client.key, "-out", tmp_path / "locked",
            "-passout", "pass:secret")  # fmt: skip
    openssl("ecparam", "-name", "P-256", "-genkey", "-noout", "-out",
            tmp_path / "client.key.other")  # fmt: skip
    with pytest.raises(ConfigError, match=told) as raised:
        tls(**{name: value.format(tmp_path) for name, value in settings.items()})
    assert "\n" not in str(raised.value)


def test_what_is_not_tls(authority: Authority) -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    made = tls(ssl_ca_location=str(authority.certificate))
    address = Address("localhost", listener.getsockname()[1])

    def serve(said: bytes | None) -> None:
        peer, _ = listener.accept()
        with peer:
            if said is None:
                peer.recv(100000)  # what is read resets nothing
                return
            peer.sendall(said)
            peer.recv(100000)
            peer.recv(1)

    for said, told in (
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "listener without TLS"),
        (None, "is this its TLS port"),
        (os.urandom(4000), "TLS with localhost"),
    ):
        thread = threading.Thread(target=serve, args=(said,))
        thread.start()
        with (
            socket.create_connection(("127.0.0.1", address.port)) as connected,
            pytest.raises(TlsError, match=told),
        ):
            made.open(connected, address, 10)
        thread.join(10)
    with (
        socket.create_connection(("127.0.0.1", address.port)) as connected,
        pytest.raises(KafkaError, match=r"no TLS answer from .* within 0\.2 s"),
    ):
        made.open(connected, address, 0.2)
    listener.close()


@pytest.mark.parametrize("highest", ["TLSv1_2", "TLSv1_3"])
def test_a_loop_goes_on_with_what_a_connection_began(
    authority: Authority, server: Identity, highest: str
) -> None:
    made = tls(ssl_ca_location=str(authority.certificate))
    loop = ClientLoop()
    loop.start()
    chance = random.Random(3)
    with listening(server, highest=highest) as address:
        connected = socket.create_connection(("127.0.0.1", address.port))
        channel = made.open(connected, address, 10)
        link = loop.add_link(connected.detach(), VERSIONS, channel)
        with pytest.raises(RuntimeError, match="handed over"):
            channel.handshake(1)
        wrong: list[int] = []

        def ask(sizes: list[int]) -> None:
            for size in sizes:
                body = os.urandom(size)
                if loop.request(link, 3, 9, body, 30.0) != body:
                    wrong.append(size)

        kinds = (0, 1, 3000, 16384, 20000, 1 << 20, 3 << 20)
        threads = [
            threading.Thread(target=ask, args=([chance.choice(kinds) for _ in range(15)],))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert not wrong
        stats = loop.link_stats(link)
        assert stats is not None
        assert (stats["answers"], stats["in_flight"]) == (45, 0)
        loop.close()
