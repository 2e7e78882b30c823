"""Requests and answers as a broker has them on a socket, for tests that stand in its place."""

from __future__ import annotations

import socket
import struct


def read_frame(link: socket.socket) -> bytes:
    """The frame that comes next, without its length; EOFError where none does."""
    (length,) = struct.unpack(">i", _read(link, 4))
    return _read(link, length)


def _read(link: socket.socket, size: int) -> bytes:
    found = bytearray()
    while len(found) < size:
        part = link.recv(size - len(found))
        if not part:
            raise EOFError
        found += part
    return bytes(found)


def answer(correlation_id: int, body: bytes, tags: bytes = b"\x00") -> bytes:
    """An answer's frame; tags: of its header, none before the flexible ones."""
    frame = struct.pack(">i", correlation_id) + tags + body
    return struct.pack(">i", len(frame)) + frame
