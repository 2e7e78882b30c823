"""Names with several addresses: each is tried until a broker answers."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kbroker.client import Admin, Consumer, Producer, dialing
from kbroker.client.address import Address
from kbroker.client.dialing import Endpoint, Endpoints, dial, resolve
from kbroker.client.errors import ConnectError
from kbroker.ext.client_clock import monotonic
from tests.support import wire
from tests.support.processes import BrokerProcess

NAME = "several.test"
SETUP_MS = 2_000


class Listener:
    """Takes connections and says nothing, or closes each at once."""

    def __init__(self, closes: bool) -> None:
        self._closes = closes
        self.taken: list[socket.socket] = []
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def _serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                taken, _ = self._server.accept()
                self.taken.append(taken)
                if self._closes:
                    taken.close()

    def close(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()
        for taken in self.taken:
            taken.close()


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Set the ports that NAME means."""
    real = socket.getaddrinfo

    def set_ports(*ports: int) -> None:
        def found(host: str, port: int, *args: Any, **more: Any) -> Any:
            if host != NAME:
                return real(host, port, *args, **more)
            kind = socket.AF_INET, socket.SOCK_STREAM, 6, ""
            return [(*kind, ("127.0.0.1", each)) for each in ports]

        monkeypatch.setattr(dialing.socket, "getaddrinfo", found)

    return set_ports


@pytest.fixture(params=["silent", "closes", "refuses"])
def wrong(request: pytest.FixtureRequest) -> Iterator[int]:
    """The port of a first address where no broker answers."""
    if request.param == "refuses":
        with socket.socket() as unused:  # bound, and nobody listens
            unused.bind(("127.0.0.1", 0))
            yield unused.getsockname()[1]
        return
    listener = Listener(request.param == "closes")
    yield listener.port
    listener.close()


def test_second_address_is_tried(
    target: BrokerProcess, topic: str, names: Callable[..., None], wrong: int
) -> None:
    wire.create_topic(target.port, topic, 1)
    names(wrong, target.port)
    settings: dict[str, Any] = {
        "bootstrap_servers": f"{NAME}:9092", "socket_connection_setup_timeout_ms": SETUP_MS,
    }  # fmt: skip
    began_s = monotonic()
    with Admin(**settings) as admin:
        assert topic in {info.name for info in admin.list_topics()}
    assert monotonic() - began_s < 3 * SETUP_MS / 1e3
    with Producer(**settings) as producer:
        assert producer.send(topic, b"x").result(30).offset == 0
    with Consumer(**settings, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        assert [record.value for record in consumer.poll(30)] == [b"x"]


def test_address_that_worked_is_tried_first(
    target: BrokerProcess, names: Callable[..., None]
) -> None:
    listener = Listener(False)
    try:
        names(listener.port, target.port)
        with Admin(
            bootstrap_servers=f"{NAME}:9092", socket_connection_setup_timeout_ms=SETUP_MS
        ) as admin:
            admin.list_topics()
            assert len(listener.taken) == 1
            for _ in range(3):
                admin._cluster.rebootstrap("the test")
                admin.list_topics()
            assert len(listener.taken) == 1
    finally:
        listener.close()


def test_no_address_that_answers_ends_within_the_limit(names: Callable[..., None]) -> None:
    listeners = [Listener(False), Listener(False), Listener(True)]
    try:
        names(*(each.port for each in listeners))
        began_s = monotonic()
        with Admin(
            bootstrap_servers=f"{NAME}:9092", socket_connection_setup_timeout_ms=600,
            default_api_timeout_ms=700, request_timeout_ms=500,
        ) as admin, pytest.raises(ConnectError):  # fmt: skip
            admin.list_topics()
        assert monotonic() - began_s < 10
        assert all(each.taken for each in listeners)
    finally:
        for each in listeners:
            each.close()


def test_addresses_that_do_not_connect_are_raced() -> None:
    """The first one drops what comes, the second is begun a quarter of a second later."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full, contextlib.ExitStack() as stack:
        for _ in range(4):  # until its queue is full
            filler = stack.enter_context(socket.socket())
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(full.getsockname())
        with socket.create_server(("127.0.0.1", 0)) as good:
            endpoints = [
                Endpoint(socket.AF_INET, each.getsockname()) for each in (full, good)
            ]
            began_s = monotonic()
            made, endpoint = dial(Address(NAME, 9092), endpoints, 20)
            made.close()
            assert endpoint == endpoints[1]
            assert 0.2 < monotonic() - began_s < 10


def test_families_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    six, four = socket.AF_INET6, socket.AF_INET
    told = [(six, "a"), (six, "b"), (six, "c"), (four, "d"), (four, "e")]
    monkeypatch.setattr(
        dialing.socket, "getaddrinfo",
        lambda *_, **__: [(family, 1, 6, "", (name,)) for family, name in told],
    )  # fmt: skip
    address = Address(NAME, 9092)
    assert [where for _, where in resolve(address)] == [("a",), ("d",), ("b",), ("e",), ("c",)]
    endpoints = Endpoints()
    endpoints.failed(address, Endpoint(six, ("a",)))
    endpoints.worked(address, Endpoint(four, ("e",)))
    assert [where for _, where in endpoints.of(address)] == [
        ("e",), ("d",), ("b",), ("c",), ("a",)
    ]  # fmt: skip


def test_name_without_address_names_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(*_: object, **__: object) -> Any:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(dialing.socket, "getaddrinfo", failing)
    with pytest.raises(ConnectError, match=f"cannot reach {NAME}:9092: Name or service"):
        resolve(Address(NAME, 9092))
