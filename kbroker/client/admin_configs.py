"""Settings of topics, brokers, groups and client metrics: read, changed, listed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kbroker.client.admin import config_text, error_of
from kbroker.client.cluster import Cluster
from kbroker.client.connection import Connection
from kbroker.client.errors import KafkaError, check
from kbroker.client.results import Results, ask_each, listed
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = [
    "BROKER",
    "BROKER_LOGGER",
    "CLIENT_METRICS",
    "GROUP",
    "TOPIC",
    "ConfigEntry",
    "ConfigOp",
    "alter_configs",
    "alter_resources",
    "describe_configs",
    "describe_resources",
    "list_config_resources",
]

# Kinds of config resources.
TOPIC = 2
BROKER = 4
BROKER_LOGGER = 8
CLIENT_METRICS = 16
GROUP = 32

_KINDS = {
    TOPIC: "topic",
    BROKER: "broker",
    BROKER_LOGGER: "broker-logger",
    CLIENT_METRICS: "client-metrics",
    GROUP: "group",
}

# Operations of IncrementalAlterConfigs (KIP-339).
_OPERATIONS = {"set": 0, "delete": 1, "append": 2, "subtract": 3}

# Sources of a config value as DescribeConfigs numbers them.
_SOURCES = {
    1: "topic",
    2: "broker (dynamic)",
    3: "cluster default (dynamic)",
    4: "broker (static)",
    5: "default",
    6: "broker logger",
    7: "client metrics",
    8: "group",
}
_TYPES = {
    1: "boolean",
    2: "string",
    3: "int",
    4: "short",
    5: "long",
    6: "double",
    7: "list",
    8: "class",
    9: "password",
}

_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)

Resource = tuple[int, str]


@dataclass(frozen=True, slots=True)
class ConfigEntry:
    """One setting with where its value comes from. value None: secret or unset.

    synonyms: where it could come from, the first being where it does: (source, name there, value).
    """

    name: str
    value: str | None
    source: str
    is_default: bool
    read_only: bool
    sensitive: bool
    kind: str
    documentation: str
    synonyms: tuple[tuple[str, str, str | None], ...] = ()


@dataclass(frozen=True, slots=True)
class ConfigOp:
    """A change of one setting. operation: set, delete (back to the default), and for lists append
    and subtract."""

    name: str
    value: str | float | None = None
    operation: str = "set"


def _subject(resource: Resource) -> str:
    kind, name = resource
    if kind == BROKER and not name:
        return "all brokers"
    shown = name if kind == BROKER else repr(name)
    return f"{_KINDS.get(kind, f'resource {kind}')} {shown}"


def _at_broker(resource: Resource) -> int | None:
    """The broker that alone answers for a resource; None: anybody does."""
    kind, name = resource
    return int(name) if kind in (BROKER, BROKER_LOGGER) and name else None


def _by_node(resources: Iterable[Resource]) -> dict[int | None, list[Resource]]:
    found: dict[int | None, list[Resource]] = {}
    for resource in resources:
        found.setdefault(_at_broker(resource), []).append(resource)
    return found


def describe_resources(
    cluster: Cluster,
    resources: Iterable[Resource],
    *,
    keys: Iterable[str] | None = None,
    synonyms: bool = False,
) -> Results[Resource, list[ConfigEntry]]:
    """The settings of resources, by name. keys: only these. synonyms: with all their sources."""
    wanted_keys = None if keys is None else list(listed(keys))

    def ask(left: list[Resource]) -> Iterator[tuple[Resource, list[ConfigEntry] | KafkaError]]:
        for node, group in _by_node(left).items():
            connection = cluster.any_connection() if node is None else cluster.connection(node)
            wanted = [
                {"resource_type": kind, "resource_name": name, "configuration_keys": wanted_keys}
                for kind, name in group
            ]
            values = {
                "resources": wanted,
                "include_synonyms": synonyms,
                "include_documentation": True,
            }
            for answer in connection.call(ApiKey.DESCRIBE_CONFIGS, values).results:
                key = int(answer.resource_type), answer.resource_name
                failed = error_of(answer.error_code, _subject(key), answer.error_message)
                yield key, failed or sorted(map(_entry, answer.configs), key=lambda e: e.name)

    return ask_each(cluster, resources, ask, final=_UNKNOWN)


def _entry(entry: Any) -> ConfigEntry:
    return ConfigEntry(
        name=entry.name,
        value=entry.value,
        source=_SOURCES.get(int(entry.config_source), str(entry.config_source)),
        is_default=int(entry.config_source) == 5,
        read_only=entry.read_only,
        sensitive=entry.is_sensitive,
        kind=_TYPES.get(int(entry.config_type), ""),
        documentation=entry.documentation or "",
        synonyms=tuple(
            (_SOURCES.get(int(same.source), str(same.source)), same.name, same.value)
            for same in entry.synonyms
        ),
    )


def describe_configs(
    cluster: Cluster, kind: int, name: str, *, keys: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """The settings of a topic or broker (by its id), by name."""
    return describe_resources(cluster, [(kind, name)], keys=keys)[kind, name]


def alter_resources(
    cluster: Cluster,
    changes: Mapping[Resource, Collection[ConfigOp]],
    *,
    validate_only: bool = False,
) -> Results[Resource, None]:
    """Changes settings of resources, each of them whole or not at all."""
    for operation in (op.operation for ops in changes.values() for op in ops):
        if operation not in _OPERATIONS:
            raise ValueError(f"operation {operation!r}: write one of {', '.join(_OPERATIONS)}")

    def ask(left: list[Resource]) -> Iterator[tuple[Resource, KafkaError | None]]:
        for node, group in _by_node(left).items():
            connection = cluster.controller() if node is None else cluster.connection(node)
            wanted = [
                {
                    "resource_type": kind,
                    "resource_name": name,
                    "configs": [
                        {
                            "name": op.name,
                            "config_operation": _OPERATIONS[op.operation],
                            "value": config_text(op.name, op.value),
                        }
                        for op in changes[kind, name]
                    ],
                }
                for kind, name in group
            ]
            values = {"resources": wanted, "validate_only": validate_only}
            yield from _altered(connection, values)

    return ask_each(cluster, changes, ask, final=_UNKNOWN)


def _altered(
    connection: Connection, values: dict[str, Any]
) -> Iterator[tuple[Resource, KafkaError | None]]:
    for answer in connection.call(ApiKey.INCREMENTAL_ALTER_CONFIGS, values).responses:
        key = int(answer.resource_type), answer.resource_name
        yield key, error_of(answer.error_code, _subject(key), answer.error_message)


def alter_configs(
    cluster: Cluster,
    kind: int,
    name: str,
    *,
    set_values: Mapping[str, str] | None = None,
    delete: Iterable[str] = (),
    validate_only: bool = False,
) -> None:
    """Sets some settings of a topic or broker and returns others to their defaults."""
    changes = [ConfigOp(key, value) for key, value in (set_values or {}).items()]
    changes += [ConfigOp(key, None, "delete") for key in delete]
    alter_resources(cluster, {(kind, name): changes}, validate_only=validate_only).checked()


def list_config_resources(cluster: Cluster, kinds: Collection[int] = ()) -> list[Resource]:
    """Resources that have settings of their own, of these kinds or of all (KIP-1142)."""

    def ask() -> list[Resource]:
        connection = cluster.any_connection()
        version = connection.version_of(ApiKey.LIST_CONFIG_RESOURCES)
        values = {"resource_types": list(kinds)} if version >= 1 else {}
        body = connection.call(ApiKey.LIST_CONFIG_RESOURCES, values)
        check(body.error_code, "config resources")
        return sorted(
            (int(getattr(r, "resource_type", CLIENT_METRICS)), r.resource_name)
            for r in body.config_resources
        )

    return cluster.retry(ask)
