"""Addresses as Apache Kafka writes them."""

from __future__ import annotations

import functools
import socket
from typing import Final

_MAPPED_IPV4: Final = bytes(10) + b"\xff\xff"


@functools.lru_cache(maxsize=1024)
def java_address(host: str) -> str:
    """An address as Java prints one: "/127.0.0.1", "/0:0:0:0:0:0:0:1"."""
    try:
        packed = socket.inet_pton(socket.AF_INET6, host)
    except OSError:
        return f"/{host}"
    if packed[:12] == _MAPPED_IPV4:
        return f"/{socket.inet_ntoa(packed[12:])}"
    groups = packed.hex(":", 2).split(":")
    return "/" + ":".join(f"{int(group, 16):x}" for group in groups)
