"""Topics, and sockets held open: just enough protocol for what is measured, over any broker."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Mapping

CREATE_TOPICS, CREATE_TOPICS_VERSION = 19, 2
API_VERSIONS = 18
TIMEOUT_S = 120.0
CLIENT_ID = b"\x00\x04perf"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S)


def read_exactly(sock: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(size - len(parts))
        if not part:
            raise ConnectionError("the broker closed the connection")
        parts += part
    return bytes(parts)


def ask(sock: socket.socket, key: int, version: int, body: bytes) -> bytes:
    """One request and the body of its response; only for versions without tagged fields."""
    payload = struct.pack(">hhi", key, version, 0) + CLIENT_ID + body
    sock.sendall(struct.pack(">i", len(payload)) + payload)
    (size,) = struct.unpack(">i", read_exactly(sock, 4))
    return read_exactly(sock, size)[4:]


def ping(port: int) -> None:
    """One ApiVersions, answered."""
    with connect(port) as sock:
        ask(sock, API_VERSIONS, 0, b"")


def text(value: str) -> bytes:
    return struct.pack(">h", len(value)) + value.encode()


def create_topics(port: int, topics: Mapping[str, int]) -> None:
    """Creates topics of so many partitions each; any error is raised."""
    with connect(port) as sock:
        create_over(sock, topics)


def create_over(sock: socket.socket, topics: Mapping[str, int]) -> None:
    """The same over a connection that is there."""
    body = struct.pack(">i", len(topics))
    for name, partitions in topics.items():
        body += text(name) + struct.pack(">ihii", partitions, 1, 0, 0)
    body += struct.pack(">i?", int(TIMEOUT_S * 1000), False)
    answer = ask(sock, CREATE_TOPICS, CREATE_TOPICS_VERSION, body)
    at = 8
    for _ in topics:
        (size,) = struct.unpack_from(">h", answer, at)
        name = answer[at + 2 : at + 2 + size].decode()
        at += 2 + size
        code, message_size = struct.unpack_from(">hh", answer, at)
        at += 4 + max(0, message_size)
        if code != 0:
            raise RuntimeError(f"topic {name} could not be created: error {code}")


def hold_connections(port: int, count: int) -> list[socket.socket]:
    """Connections that have been answered once and stay open."""
    held = []
    for _ in range(count):
        sock = connect(port)
        ask(sock, API_VERSIONS, 0, b"")
        held.append(sock)
    return held


def ms_to_first_answer(port: int, begun: float, timeout_s: float) -> float:
    """Milliseconds from `begun` (of time.perf_counter) to the first answered request."""
    while True:
        try:
            ping(port)
        except OSError:
            if time.perf_counter() - begun > timeout_s:
                raise
            time.sleep(0.001)
        else:
            return (time.perf_counter() - begun) * 1000
