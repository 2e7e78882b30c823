"""Host header validation, against DNS rebinding.

A web site can make a browser resolve the name of that site to 127.0.0.1. The site's scripts then
read what a broker serves on loopback, and send the site's name as Host. A listener on loopback
therefore accepts only names that a web site cannot have: localhost, IP addresses, and the
broker's own names. (A browser sends an IP address as Host only after it connected to that address
without DNS.)

Listeners on other addresses accept every Host. They serve all machines that can connect, and
scrapers, probes and load balancers use service names that the broker does not know.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable
from typing import Final

from kbroker.printable import one_line
from kbroker.server.http_message import Page, Request, text_page

# Probes and scrapers that are no browsers, and send HTTP/1.0 or leave Host out.
_WITHOUT_HOST: Final = ("/livez", "/readyz", "/metrics")
_MAPPED: Final = "::ffff:"
_NAME_CHARS: Final = 100


class HostCheck:
    """The Host names that one listener accepts."""

    def __init__(self, address: str, names: Iterable[str]) -> None:
        """`address` is the IP address that the listener is bound to, `names` are the broker's."""
        self._is_strict = unmapped(address).startswith("127.") or address == "::1"
        self._names = frozenset(("localhost", *map(_normal, filter(None, names))))

    def refusal(self, request: Request) -> Page | None:
        """Return the error page for a request with a Host that is not accepted."""
        if not self._is_strict:
            return None
        host = request.headers.get("host", "")
        if not host:
            if request.path in _WITHOUT_HOST:
                return None
            return text_page("the request has no Host header; add it, as Host: localhost", 400)
        name = _normal(_name_of(host))
        if name in self._names or name.endswith(".localhost") or _is_address(name):
            return None
        return text_page(
            f"the Host header {one_line(host, _NAME_CHARS)} is not a name of this listener, which "
            "is on loopback; use localhost or 127.0.0.1, or add the name to kbroker.http.listeners "
            "or advertised.listeners",
            421,
        )


def unmapped(address: str) -> str:
    """Return the IPv4 address that an IPv6 socket shows as ::ffff:a.b.c.d."""
    return address[len(_MAPPED) :] if address.startswith(_MAPPED) and "." in address else address


def _name_of(host: str) -> str:
    """Cut the port and the brackets of an IPv6 address off; malformed text is returned as it is."""
    if host.startswith("["):
        name, bracket, port = host[1:].partition("]")
        return name if bracket and (not port or _is_port(port)) else host
    if host.count(":") > 1:
        return host
    name, colon, port = host.partition(":")
    return name if not colon or _is_port(f":{port}") else host


def _is_port(text: str) -> bool:
    digits = text[1:]
    return text[0] == ":" and (not digits or (digits.isascii() and digits.isdigit()))


def _normal(name: str) -> str:
    return name.lower().removesuffix(".")


def _is_address(name: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, name.partition("%")[0])
        except (OSError, ValueError):
            continue
        return True
    return False
