"""TLS listeners of a broker: what is told at the start, and what changes while it runs."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import pytest

from tests.reference.crafted_batches import batch
from tests.support import wire
from tests.support.certificates import PASSWORD, Authority, openssl
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import (
    API_VERSIONS,
    DESCRIBE_CONFIGS,
    FETCH,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    PRODUCE,
    WireConnection,
)

StartBroker = Callable[..., KbrokerProcess]
BROKERS = 4
LISTENER = "listener.name.ssl.ssl.keystore"


def trusting(authority: Authority) -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(authority.certificate))


def serial_shown(broker: KbrokerProcess, authority: Authority) -> str:
    """The serial number of the certificate that a new connection sees; it is served."""
    with WireConnection(broker.ports["SSL"], tls=trusting(authority)) as connection:
        assert connection.call(API_VERSIONS, 0)["error_code"] == 0
        shown = connection.socket.getpeercert()  # type: ignore[attr-defined]
        return str(shown["serialNumber"])


# --- at the start ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stores(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what can be wrong with a store."""
    folder = tmp_path_factory.mktemp("stores")
    made = authority.issue("server")
    for file in (made.key, made.certificate, made.pem, made.p12):
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / "store.jks").write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    openssl("pkcs8", "-topk8", "-in", made.key, "-out", folder / "locked.key",
            "-passout", "pass:secret")  # fmt: skip
    locked = (folder / "locked.key").read_text() + made.certificate.read_text()
    (folder / "locked.pem").write_text(locked)
    other = authority.issue("other")
    (folder / "mixed.pem").write_text(other.key.read_text() + made.certificate.read_text())
    return folder


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({}, "set ssl.keystore.location.*kbroker cert create"),
        ({"ssl.keystore.location": "{}/none"}, "none: No such file"),
        ({"ssl.keystore.location": "{}/store.jks"}, "JKS key store.*keytool -importkeystore"),
        ({"ssl.keystore.location": "{}/server.p12"}, "is the password right"),
        ({"ssl.keystore.location": "{}/server.p12", "ssl.keystore.password": "no"},
         "is the password right"),
        ({"ssl.keystore.location": "{}/locked.pem"}, "encrypted: give ssl.key.password"),
        ({"ssl.keystore.location": "{}/locked.pem", "ssl.key.password": "no"},
         "ssl.key.password is wrong"),
        ({"ssl.keystore.location": "{}/mixed.pem"}, "values mismatch"),
        ({"ssl.keystore.location": "{}/server.crt"}, "holds no private key"),
        ({"ssl.keystore.location": "{}/server.pem", "ssl.enabled.protocols": "TLSv1.1"},
         "ssl.enabled.protocols=TLSv1.1: TLSv1.2 and TLSv1.3 are spoken"),
        ({"ssl.keystore.location": "{}/server.pem", "ssl.cipher.suites": "TLS_NONE"},
         "ssl.cipher.suites: TLS_NONE"),
        ({"ssl.keystore.location": "{}/server.pem", "ssl.client.auth": "required",
          "ssl.truststore.location": "{}/none"}, "ssl.truststore.location .*none: No such file"),
        ({"ssl.keystore.location": "{}/server.pem", "ssl.principal.mapping.rules": "RULE:x"},
         "ssl.principal.mapping.rules: no rule"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_told_in_one_line(
    tmp_path: Path, stores: Path, settings: dict[str, str], told: str
) -> None:
    """Before anything is written."""
    filled = {name: value.format(stores) for name, value in settings.items()}
    broker = KbrokerProcess(tmp_path, filled, listeners=("SSL",))
    with pytest.raises(AssertionError, match=told) as raised:
        broker.start()
    lines = str(raised.value).splitlines()
    assert len([line for line in lines if line.startswith("kbroker: ")]) == 1, lines
    assert not list(broker.data_dir.glob("*"))


@pytest.fixture
def without_openssl(tmp_path: Path) -> dict[str, str]:
    """An environment in which no libssl can be opened: the first that the loader finds are empty,
    and it looks no farther."""
    folder = tmp_path / "nothing"
    folder.mkdir()
    for name in ("libssl.so.3", "libssl.so.1.1"):
        (folder / name).touch()
    environ = {"LD_LIBRARY_PATH": str(folder)}
    tried = "import ctypes; ctypes.CDLL('libssl.so.3')"
    done = subprocess.run([sys.executable, "-c", tried], env=os.environ | environ, check=False,
                          capture_output=True, timeout=60)  # fmt: skip
    if b"OSError" not in done.stderr:
        pytest.skip("this loader finds libssl whatever LD_LIBRARY_PATH says")
    return environ


def test_a_machine_without_openssl(
    tmp_path: Path, authority: Authority, without_openssl: dict[str, str]
) -> None:
    """Is told so where TLS is asked for, and needs none elsewhere."""
    settings = {"ssl.keystore.location": str(authority.issue("server").pem)}
    broker = KbrokerProcess(tmp_path, settings, environ=without_openssl, listeners=("SSL",))
    told = "kbroker: listener SSL: TLS needs OpenSSL: neither libssl.so.3 nor libssl.so.1.1 is here"
    with pytest.raises(AssertionError, match=told):
        broker.start()
    assert not list(broker.data_dir.glob("*"))
    broker.ports = {}
    broker.start()
    try:
        assert wire.call_once(broker.port, METADATA, 9, {"topics": None})["cluster_id"]
    finally:
        broker.kill()


def test_inline_stores(start_kbroker: StartBroker, authority: Authority) -> None:
    """PEM as settings, in one line as well, and a key with a password."""
    made = authority.issue("inline")
    locked = made.key.with_suffix(".locked")
    openssl("pkcs8", "-topk8", "-in", made.key, "-out", locked, "-passout", "pass:secret")
    settings = {
        "ssl.keystore.certificate.chain": " ".join(made.certificate.read_text().split("\n")),
        "ssl.keystore.key": locked.read_text(),
        "ssl.key.password": "secret",
        "ssl.truststore.certificates": authority.certificate.read_text(),
        "ssl.client.auth": "requested",
    }
    broker = start_kbroker(settings, listeners=("SSL",))
    context = trusting(authority)
    context.load_cert_chain(made.pem)
    with WireConnection(broker.ports["SSL"], tls=context) as connection:
        assert connection.call(METADATA, 9, {"topics": None})["cluster_id"]
    with WireConnection(broker.ports["SSL"], tls=trusting(authority)) as connection:
        assert connection.call(METADATA, 9, {"topics": None})["cluster_id"]


def test_clients_are_told_the_address_of_their_listener(
    start_kbroker: StartBroker, authority: Authority
) -> None:
    store = authority.issue("server").pem
    broker = start_kbroker({"ssl.keystore.location": str(store)}, listeners=("SSL",))
    with WireConnection(broker.ports["SSL"], tls=trusting(authority)) as connection:
        (node,) = connection.call(METADATA, 9, {"topics": None})["brokers"]
        assert node["port"] == broker.ports["SSL"]
    assert broker.stop() == 0


# --- while it runs --------------------------------------------------------------------------------


def test_sighup_reads_certificates_again(start_kbroker: StartBroker, authority: Authority) -> None:
    """Connections go on; what cannot be used changes nothing."""
    store = authority.issue("renewed").pem
    broker = start_kbroker({"ssl.keystore.location": str(store)}, listeners=("SSL",))
    first = serial_shown(broker, authority)
    with WireConnection(broker.ports["SSL"], tls=trusting(authority)) as before:
        authority.issue("renewed")
        broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
        wait_for("the new one", lambda: serial_shown(broker, authority) != first, 60)
        second = serial_shown(broker, authority)
        good = store.read_bytes()
        for bad, told in (
            (b"nothing", "TLS stays as it was: listener SSL: .*holds no certificate"),
            (authority.issue("somebody").pem.read_bytes(), "ssl.allow.dn.changes"),
        ):
            store.write_bytes(bad)
            broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
            wait_for(told, lambda told=told: told.partition(".*")[0] in broker.log_text(), 60)
            assert serial_shown(broker, authority) == second
        store.write_bytes(good)
        assert before.call(API_VERSIONS, 0)["error_code"] == 0


class Load:
    """Clients of a TLS listener, a thread each: two that come and go, two that stay."""

    def __init__(self, broker: KbrokerProcess, authority: Authority) -> None:
        self._port, self._context = broker.ports["SSL"], trusting(authority)
        self._stopped = threading.Event()
        self.done = [0] * 4
        self.serials: dict[str, None] = {}
        """Certificates that were shown, in the order in which they came."""
        self.failed: list[BaseException] = []
        works = (self._shake, self._shake, self._produce, self._fetch)
        self._threads = [
            threading.Thread(target=self._run, args=(number, work))
            for number, work in enumerate(works)
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        for thread in self._threads:
            thread.join(120)

    def _run(self, number: int, work: Callable[[], Iterator[None]]) -> None:
        try:
            for _ in work():
                self.done[number] += 1
                if self._stopped.is_set():
                    return
        except BaseException as error:
            self.failed.append(error)

    def _connection(self) -> WireConnection:
        return WireConnection(self._port, timeout_s=60, tls=self._context)

    def _shake(self) -> Iterator[None]:
        while True:
            with self._connection() as one:
                assert one.call(API_VERSIONS, 0)["error_code"] == 0
                shown = one.socket.getpeercert()  # type: ignore[attr-defined]
                self.serials.setdefault(str(shown["serialNumber"]))
            yield

    def _produce(self) -> Iterator[None]:
        part = {"index": 0, "records": batch(b"x" * 20_000)}
        data = [{"name": "t", "partition_data": [part]}]
        with self._connection() as one:
            while True:
                answer = one.call(PRODUCE, 9, {"acks": -1, "timeout": 60_000, "topic_data": data})
                assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0
                yield

    def _fetch(self) -> Iterator[None]:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait": 100, "min_bytes": 1, "max_bytes": 1 << 20,
                "topics": [{"topic": "t", "partitions": [part]}], "session_epoch": -1}  # fmt: skip
        with self._connection() as one:
            while True:
                answer = one.call(FETCH, 11, body)
                assert answer["responses"][0]["partitions"][0]["error_code"] == 0
                yield

    def goes_on(self, what: str, is_so: Callable[[], bool] = lambda: True) -> None:
        """Waits until it is so and each has done something more; nothing may fail meanwhile."""
        before = list(self.done)

        def went_on() -> bool:
            assert not self.failed, self.failed
            return is_so() and all(now > then for now, then in zip(self.done, before, strict=True))

        wait_for(what, went_on, 120, 0.01)


def test_certificates_are_read_again_under_load(
    start_kbroker: StartBroker, authority: Authority
) -> None:
    """No handshake fails, no connection breaks; each new one is shown, the last for good."""
    store = authority.issue("loaded").pem
    settings = {"ssl.keystore.location": str(store), "kbroker.durability": "page-cache"}
    broker = start_kbroker(settings, listeners=("SSL",))
    wire.create_topic(broker.port, "t")
    with Load(broker, authority) as load:
        load.goes_on("everybody is at work")
        for number in range(1, 5):
            authority.issue("loaded")
            broker.process.send_signal(signal.SIGHUP)  # type: ignore[union-attr]
            load.goes_on("a new one", lambda n=number: len(load.serials) == n + 1)
        load.goes_on("and what it does to them")
    assert not load.failed
    assert len(load.serials) == 5
    assert {serial_shown(broker, authority) for _ in range(9)} == {list(load.serials)[-1]}


def alter(broker: KbrokerProcess, **configs: str) -> dict[str, Any]:
    changes = [
        {"name": name, "config_operation": 0, "value": value} for name, value in configs.items()
    ]
    resource = {"resource_type": BROKERS, "resource_name": "1", "configs": changes}
    answer = wire.call_once(broker.port, INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [resource]})
    (result,) = answer["responses"]
    return dict(result)


def test_certificates_change_as_settings(start_kbroker: StartBroker, authority: Authority) -> None:
    """Of one listener, for good: a restart keeps them; secrets are not shown."""
    one, two = authority.issue("one"), authority.issue("two", "DNS:localhost")
    broker = start_kbroker({"ssl.keystore.location": str(one.pem)}, listeners=("SSL",))
    first = serial_shown(broker, authority)
    for wrong, told in (
        ({f"{LISTENER}.location": "/nowhere"}, "No such file"),
        ({f"{LISTENER}.location": str(two.p12)}, "is the password right"),
        ({f"{LISTENER}.location": str(two.pem)}, "ssl.allow.dn.changes"),
        ({"ssl.keystore.location": str(two.pem)}, "by its prefix"),
    ):
        result = alter(broker, **wrong)
        assert result["error_code"] == 42, result
        assert told in result["error_message"]
    assert serial_shown(broker, authority) == first
    again = authority.issue("one")  # the same name in another certificate
    right = {f"{LISTENER}.location": str(again.p12), f"{LISTENER}.password": PASSWORD}
    assert alter(broker, **right)["error_code"] == 0
    second = serial_shown(broker, authority)
    assert second != first
    asked = {"resource_type": BROKERS, "resource_name": "1", "configuration_keys": None}
    answer = wire.call_once(broker.port, DESCRIBE_CONFIGS, 4, {"resources": [asked]})
    assert answer["results"][0]["error_code"] == 0
    assert PASSWORD not in str(answer)
    broker.stop()
    broker.start()
    assert serial_shown(broker, authority) == second


def test_a_client_that_speaks_less_than_is_asked_is_told(
    start_kbroker: StartBroker, authority: Authority
) -> None:
    server = authority.issue("server", "DNS:localhost,IP:127.0.0.1")
    module = "org.apache.kafka.common.security.plain.PlainLoginModule"
    settings = {
        "ssl.keystore.location": str(server.pem), "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{module} required user_a="b";',
    }  # fmt: skip
    broker = start_kbroker(settings, listeners=("SSL", "SASL_SSL"))
    encrypted = ["-X", "security.protocol=SSL", "-X", f"ssl.ca.location={authority.certificate}"]
    for port, told, how in (
        (broker.ports["SSL"], "security.protocol has to say so", []),
        (broker.ports["SASL_SSL"], "security.protocol has to be SASL_SSL", encrypted),
    ):
        done = subprocess.run(
            [sys.executable, "-m", "kbroker.cli", "topic", "list", "-b", f"127.0.0.1:{port}", *how],
            check=False, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        assert done.returncode == 1 and told in done.stderr


# --- kbroker cert create --------------------------------------------------------------------------


def cert_create(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "kbroker.cli", "cert", "create", *arguments],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip


def test_certificates_made_by_the_command_line(
    start_kbroker: StartBroker, tmp_path: Path
) -> None:
    """OpenSSL judges them, a broker takes them, a client with its own is let in."""
    folder = tmp_path / "tls"
    made = cert_create("--dir", str(folder), "--host", "broker.example", "--host", "10.0.0.7")
    assert made.returncode == 0, made.stderr
    alice = cert_create("--dir", str(folder), "--client", "alice")
    assert alice.returncode == 0, alice.stderr
    asked = re.findall(r"--set ([^=\s]+)=([^,\s]+)", alice.stdout)  # what it tells of the broker
    assert [name for name, _ in asked] == ["ssl.client.auth", "ssl.truststore.location"]
    again = cert_create("--dir", str(folder))
    assert again.returncode == 1
    assert "--force" in again.stderr
    for private in ("ca.key", "server.pem", "alice.pem"):
        assert (folder / private).stat().st_mode & 0o077 == 0, private
    for purpose, name in (("sslserver", "server.pem"), ("sslclient", "alice.pem")):
        openssl("verify", "-x509_strict", "-purpose", purpose, "-CAfile", folder / "ca.pem",
                folder / name)  # fmt: skip
    openssl("x509", "-in", folder / "server.pem", "-noout", "-checkhost", "broker.example",
            "-checkend", str(800 * 86400))  # fmt: skip
    settings = {
        "ssl.keystore.location": str(folder / "server.pem"),
        **dict(asked),
    }
    broker = start_kbroker(settings, listeners=("SSL",))
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    context.load_cert_chain(folder / "alice.pem")
    for host in ("127.0.0.1", "localhost"):
        with WireConnection(broker.ports["SSL"], host, tls=context) as connection:
            assert connection.call(METADATA, 9, {"topics": None})["cluster_id"]
