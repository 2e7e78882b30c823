"""Listeners: where to bind, what to tell clients, which protocol a name speaks.

The syntax is Apache Kafka's `NAME://host:port,...`; IPv6 addresses stand in brackets. Listeners
named in `controller.listener.names` are left out, so that a file for combined mode can be read:
kbroker has no controller listener.
"""

from __future__ import annotations

import re
import socket
from typing import Final, NamedTuple

from kbroker.config.types import ConfigError
from kbroker.ports import may_be_host

_ENDPOINT: Final = re.compile(r"(?P<name>[^:/]+)://\[?(?P<host>[0-9a-zA-Z\-%._:]*)\]?:(?P<port>-?[0-9]+)\Z")
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
TLS_PROTOCOLS: Final = frozenset({"SSL", "SASL_SSL"})
_PORT_MAX: Final = 65535


class Endpoint(NamedTuple):
    """One entry of a listener list."""

    name: str
    host: str
    port: int


class Listener(NamedTuple):
    """Where to bind, and the address that clients of this listener are told.

    `advertised_port` is 0 where clients are told the port that was bound.
    """

    name: str
    protocol: str
    host: str
    port: int
    advertised_host: str
    advertised_port: int


def parse_endpoint(text: str, key: str) -> Endpoint:
    """One `NAME://host:port`. Raises ConfigError that names `key`."""
    match = _ENDPOINT.match(text)
    if match is None or int(match["port"]) > _PORT_MAX or int(match["port"]) < 0:
        raise ConfigError(f"{key}: {text!r} is not of the form NAME://host:port")
    if not may_be_host(match["host"]):
        raise ConfigError(f"{key}: {match['host']!r} in {text!r} is neither a name nor an address")
    return Endpoint(match["name"].upper(), match["host"], int(match["port"]))


def http_endpoints(texts: list[str]) -> list[Endpoint]:
    """kbroker.http.listeners. Raises ConfigError."""
    found = [parse_endpoint(text.strip(), "kbroker.http.listeners") for text in texts]
    for endpoint in found:
        if endpoint.name != "HTTP":
            raise ConfigError(f"kbroker.http.listeners: {endpoint.name} is not HTTP")
    return found


def parse_protocol_map(text: str) -> dict[str, str]:
    """Protocol by listener name. Raises ConfigError."""
    protocols: dict[str, str] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, colon, protocol = entry.rpartition(":")
        if not colon or protocol.upper() not in _PROTOCOLS:
            raise ConfigError(
                f"listener.security.protocol.map: {entry!r} is not of the form NAME:PROTOCOL "
                f"with a protocol of {', '.join(_PROTOCOLS)}"
            )
        protocols[name.strip().upper()] = protocol.upper()
    return protocols


def resolve_listeners(
    listeners: list[str],
    advertised: list[str] | None,
    protocol_map: str,
    controller_names: list[str],
) -> list[Listener]:
    """The listeners to open, in the order of `listeners`. Raises ConfigError."""
    protocols = parse_protocol_map(protocol_map)
    controllers = {name.upper() for name in controller_names}
    bound = _endpoints(listeners, "listeners", controllers)
    told = {
        entry.name: entry
        for entry in _endpoints(advertised or [], "advertised.listeners", controllers)
    }
    if not bound:
        raise ConfigError("listeners: no listener is left for clients")
    _refuse_shared_ports(bound)
    for name in told.keys() - {entry.name for entry in bound}:
        raise ConfigError(f"advertised.listeners: {name} is not a name in listeners")
    return [_listener(entry, told.get(entry.name), protocols) for entry in bound]


def controller_endpoints(
    listeners: list[str], advertised: list[str], controller_names: list[str]
) -> list[Endpoint]:
    """The endpoints of `listeners`, or where they have one of `advertised`, that are named as
    controllers'. None of them is opened."""
    names = {name.upper() for name in controller_names}
    found = {}
    for text in (*listeners, *advertised):
        endpoint = parse_endpoint(text.strip(), "listeners")
        if endpoint.name in names:
            found[endpoint.name] = endpoint
    return list(found.values())


def _listener(bound: Endpoint, told: Endpoint | None, protocols: dict[str, str]) -> Listener:
    protocol = protocols.get(bound.name)
    if protocol is None:
        raise ConfigError(
            f"listener.security.protocol.map: no security protocol for listener {bound.name}"
        )
    host = told.host if told is not None else bound.host
    if host in ("0.0.0.0", "::"):
        raise ConfigError(
            f"listeners: clients cannot connect to {host}; tell their address with "
            f"advertised.listeners={bound.name}://HOST:{bound.port}"
        )
    port = told.port if told is not None else 0
    return Listener(
        bound.name, protocol, bound.host, bound.port, host or socket.gethostname(), port
    )


def _endpoints(texts: list[str], key: str, controllers: set[str]) -> list[Endpoint]:
    found: list[Endpoint] = []
    for text in texts:
        endpoint = parse_endpoint(text.strip(), key)
        if endpoint.name in controllers:
            continue
        if any(endpoint.name == other.name for other in found):
            raise ConfigError(f"{key}: {endpoint.name} is given twice; names must differ")
        found.append(endpoint)
    return found


def _refuse_shared_ports(bound: list[Endpoint]) -> None:
    """Two listeners may share a port only as one IPv4 and one IPv6 address."""
    seen: dict[int, Endpoint] = {}
    for endpoint in bound:
        if endpoint.port == 0:
            continue
        other = seen.setdefault(endpoint.port, endpoint)
        both = {":" in other.host, ":" in endpoint.host}
        if other is not endpoint and (len(both) == 1 or not (other.host and endpoint.host)):
            raise ConfigError(
                f"listeners: {other.name} and {endpoint.name} share port {endpoint.port}"
            )
