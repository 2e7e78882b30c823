"""The engine alone, with handlers that only tests install, and a client that speaks frames."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Self

from kbroker.ext import testing_network as handlers
from kbroker.ext.engine import Engine

API_VERSIONS = 18
KEYS = [(API_VERSIONS, 0, 4, 3), *((key, 0, 1, 1) for key in range(100, 115))]


def frame(key: int, correlation_id: int, body: bytes = b"", version: int = 0) -> bytes:
    """A request with a null client id; version 1 and up of the test's keys has header v2."""
    flexible = version >= (3 if key == API_VERSIONS else 1)
    header = struct.pack(">hhih", key, version, correlation_id, -1) + b"\0" * flexible
    return struct.pack(">i", len(header) + len(body)) + header + body


class Client:
    """One connection."""

    def __init__(self, port: int, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket()
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(20)
        self.socket.connect(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, correlation_id: int, body: bytes = b"", version: int = 0) -> None:
        """Send one request."""
        self.socket.sendall(frame(key, correlation_id, body, version))

    def receive_bytes(self, count: int) -> bytes:
        """Exactly so many; EOFError when the engine closed."""
        parts = bytearray()
        while len(parts) < count:
            got = self.socket.recv(min(count - len(parts), 1 << 20))
            if not got:
                raise EOFError(f"closed after {len(parts)} of {count} bytes")
            parts += got
        return bytes(parts)

    def receive(self) -> tuple[int, bytes]:
        """(correlation id, what follows it) of the next answer."""
        (length,) = struct.unpack(">i", self.receive_bytes(4))
        answer = self.receive_bytes(length)
        return struct.unpack(">i", answer[:4])[0], answer[4:]

    def call(self, key: int, correlation_id: int, body: bytes = b"", version: int = 0) -> bytes:
        """Send one request and return its answer's body; the correlation id must fit."""
        self.send(key, correlation_id, body, version)
        got, answer = self.receive()
        assert got == correlation_id
        return answer

    def is_closed(self) -> bool:
        """Waits for the engine to close; False when it answers instead."""
        try:
            return not self.socket.recv(1)
        except ConnectionResetError:
            return True


@contextmanager
def running_engine(settings: dict[str, int] | None = None, fd: int = -1) -> Iterator[Engine]:
    """An engine with the test handlers, started, with its port in `engine_port(engine)`."""
    engine = Engine({"num.network.threads": 2, "num.io.threads": 2} | (settings or {}))
    port = engine.listen("127.0.0.1", 0, "PLAINTEXT")
    handlers.install(engine, fd)
    engine.set_api_versions({0: struct.pack(">hi", 0, 0), 3: b"three", 4: b"four"}, KEYS)
    engine.start()
    _ports[id(engine)] = port
    try:
        yield engine
    finally:
        del _ports[id(engine)]
        engine.stop(2000)
        handlers.post_once()


_ports: dict[int, int] = {}


def engine_port(engine: Engine) -> int:
    """Where the engine listens."""
    return _ports[id(engine)]
