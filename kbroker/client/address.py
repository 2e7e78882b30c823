"""Addresses of brokers as users write them."""

from __future__ import annotations

from typing import NamedTuple

from kbroker.ports import may_be_host

__all__ = ["DEFAULT_PORT", "Address", "parse_address"]

DEFAULT_PORT = 9092
_PROTOCOLS = frozenset({"SSL", "SASL_PLAINTEXT", "SASL_SSL"})


class Address(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


def parse_address(text: str, *, to_bind: bool = False) -> Address:
    """`host`, `host:port`, `[v6]:port`, with or without `PLAINTEXT://` in front.

    to_bind: port 0 (the kernel picks one) and an empty host (every interface) are fine as well.
    Raises ValueError with a line that says what is wrong.
    """
    credentials, at, where = text.rpartition("@")
    if at and credentials:
        raise ValueError(
            f"{where!r} has a user or password before it: write HOST:PORT, and sasl.username and"
            " sasl.password"
        )
    rest = text.strip()
    scheme, found, after = rest.partition("://")
    if found:
        if scheme.upper() in _PROTOCOLS and not to_bind:
            raise ValueError(f"{text!r}: write {after}, and security.protocol={scheme.upper()}")
        if scheme.upper() != "PLAINTEXT" and not to_bind:
            raise ValueError(f"{text!r}: write HOST:PORT, without {scheme}://")
        rest = after
    if rest.startswith("["):
        host, bracket, tail = rest[1:].partition("]")
        if not bracket or (tail and not tail.startswith(":")):
            raise ValueError(f"{text!r}: brackets go around the address; write [HOST]:PORT")
        port = tail.removeprefix(":")
    elif rest.count(":") > 1:
        host, port = rest, ""
    else:
        host, _, port = rest.partition(":")
    if not may_be_host(host):
        raise ValueError(f"{text!r}: {host!r} is neither a name nor an address; write HOST:PORT")
    if not host and not (to_bind and port):
        raise ValueError(f"{text!r}: no host; write HOST:PORT")
    if not port:
        return Address(host, DEFAULT_PORT)
    lowest = 0 if to_bind else 1
    if not port.isascii() or not port.isdigit() or not lowest <= int(port) < 65536:
        raise ValueError(f"{text!r}: {port!r} is not a port; write HOST:PORT")
    return Address(host, int(port))
