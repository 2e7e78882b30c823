"""Where to listen: a name and a number made into a socket, and which names can be addresses."""

from __future__ import annotations

import socket


def may_be_host(text: str) -> bool:
    """Whether `text` may be the host of an address, or nothing: what has a colon is one of IPv6."""
    if ":" not in text:
        return True
    try:
        socket.inet_pton(socket.AF_INET6, text.partition("%")[0])  # without its zone
    except OSError:
        return False
    return True


def bound(host: str, port: int) -> socket.socket:
    """A stream socket bound to the first address of host ("" is every one) and port (0 is one that
    the kernel picks); it does not listen yet. Raises OSError."""
    # An ASCII name as bytes: as text it would bring in the codec of international ones, 5 ms.
    name = host.encode() if host.isascii() else host
    family, kind, protocol, _, address = socket.getaddrinfo(
        name or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    made = socket.socket(family, kind, protocol)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
    except BaseException:
        made.close()
        raise
    return made
