"""Connections within one machine are not paced, whatever the system has for all (BBR)."""

from __future__ import annotations

import contextlib
import os
import socket

from kbroker.client import connection
from kbroker.client.address import Address
from kbroker.client.dialing import dial, resolve
from kbroker.ext.engine import Engine
from tests.support.waits import wait_for


def congestion_of(made: socket.socket) -> str:
    name = made.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
    return name.rstrip(b"\0").decode()


def is_there(congestion: str) -> bool:
    """Whether the kernel has it, for this user."""
    with socket.socket() as made, contextlib.suppress(OSError):
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion.encode())
        return True
    return False


def served_end(client: socket.socket) -> str | None:
    """What the engine, which is of this process, has for the connection of a client."""
    for name in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(name))) as found:
            if found.getpeername() == client.getsockname():
                return congestion_of(found)
    return None


def served(listening: str, address: str) -> str | None:
    """The same of a client with that address; what the listening socket has is given."""
    made = socket.socket()
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, listening.encode())
    made.bind(("127.0.0.1", 0))
    engine = Engine({"num.network.threads": 1, "num.io.threads": 1})
    port = engine.adopt(made.detach(), "PLAINTEXT")
    engine.start()
    try:
        with socket.create_connection(("127.0.0.1", port), 20, (address, 0)) as client:
            wait_for("it is accepted", lambda: engine.stats()["accepted"] == 1, 20)
            return served_end(client)
    finally:
        engine.stop(2000)


def test_clients_of_the_broker_s_own_address() -> None:
    """127.0.0.2 stands for another machine: as the listening socket had it."""
    for listening in filter(is_there, ("reno", "bbr")):
        assert served(listening, "127.0.0.1") == "reno"
        assert served(listening, "127.0.0.2") == listening


def test_a_broker_of_the_client_s_own_address() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Address("127.0.0.1", listener.getsockname()[1])
        made, _ = dial(address, resolve(address), 20)
        connection._set_up(made, {})
        with made:
            assert congestion_of(made) == "reno"
