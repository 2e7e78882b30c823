"""Changes of settings, checked and turned into records; for AlterConfigs and its incremental form.

A resource changes whole or not at all: one bad value leaves everything of it as it was.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kbroker.api import publish
from kbroker.api.config_resources import (
    BROKERS,
    CLIENT_METRICS,
    GROUPS,
    NAMES,
    TOPICS,
    check_topic_name,
    parse_node,
    require_configs,
)
from kbroker.api.context import Context, Services
from kbroker.api.topic_creation import check_lengths
from kbroker.config import BrokerConfig
from kbroker.config.client_metrics import validate_subscription
from kbroker.config.definitions import BROKER as BROKER_KEYS
from kbroker.config.definitions import CLIENT_METRICS as CLIENT_METRICS_KEYS
from kbroker.config.definitions import FIXED_HERE, THROTTLES, find_broker_key
from kbroker.config.definitions import GROUP as GROUP_KEYS
from kbroker.config.definitions import TOPIC as TOPIC_KEYS
from kbroker.config.group import validate_group
from kbroker.config.topic import validate_topic
from kbroker.config.types import (
    CLASS,
    LIST,
    PER_BROKER,
    READ_ONLY,
    ConfigError,
    ConfigKey,
    parse_value,
)
from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import CHANGES_PER_REQUEST_MAX_COUNT
from kbroker.metadata import builders
from kbroker.metadata.image import Resource
from kbroker.metadata.records.schema import Record
from kbroker.metadata.records.topics import ClearElrRecord, ConfigRecord
from kbroker.operations import Completion, Steps, joined
from kbroker.security.acls import ALTER_CONFIGS

SET, DELETE, APPEND, SUBTRACT = range(4)
_ELIGIBLE_LEADERS: Final = "eligible.leader.replicas.version"
_MIN_IN_SYNC: Final = "min.insync.replicas"
# Settings of a listener that all brokers may share.
_SHARED: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
_OF_LISTENER: Final = re.compile(r"listener\.name\.(?P<listener>[^.]*)\.(?P<base>.*)")
_POSITIVE: Final = frozenset({"max.connections", "max.connection.creation.rate"})
_NETWORK_THREADS: Final = "num.network.threads"
_CLEANER_THREADS: Final = "log.cleaner.threads"
_THREADS: Final = (
    "background.threads",
    _CLEANER_THREADS,
    "num.io.threads",
    _NETWORK_THREADS,
    "num.recovery.threads.per.data.dir",
    "num.replica.fetchers",
)
_KEYS: Final[dict[int, Mapping[str, ConfigKey]]] = {
    TOPICS: TOPIC_KEYS,
    BROKERS: BROKER_KEYS,
    CLIENT_METRICS: CLIENT_METRICS_KEYS,
    GROUPS: GROUP_KEYS,
}


def duplicates(resources: Iterable[Any]) -> Steps[set[tuple[int, str]]]:
    """Find the resources that a request names more than once."""
    seen: set[tuple[int, str]] = set()
    twice: set[tuple[int, str]] = set()
    for resource in resources:
        key = resource.resource_type, resource.resource_name
        (twice if key in seen else seen).add(key)
        yield
    return twice


def check_shape(configs: Iterable[tuple[str, str | None, int]]) -> Steps[None]:
    """Refuse keys that are given twice, and null where a value is needed. Raises ClientError."""
    names: set[str] = set()
    empty: list[str] = []
    count = 0
    for name, value, operation in configs:
        count += 1
        names.add(name)
        if value is None and operation != DELETE:
            empty.append(name)
        yield
    if len(names) != count:
        raise ClientError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
    if empty:
        text = f"Null value not supported for : {', '.join(empty)}"
        raise ClientError(ErrorCode.INVALID_REQUEST, text)


def resource_of(context: Context, kind: int, name: str) -> Resource:
    """The resource in the terms of the image. Raises ClientError for one that cannot be."""
    if kind not in _KEYS:
        raise ClientError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {kind}")
    if kind == BROKERS:
        if name:
            unexpected = "Unexpected broker id, expected {}, but received {}"
            parse_node(name, context.node_id, "Node", unexpected)
    elif not name:
        raise ClientError(
            ErrorCode.INVALID_REQUEST,
            "Subscription name can't be empty"
            if kind == CLIENT_METRICS
            else f"Default {NAMES[kind]} resources are not allowed.",
        )
    elif kind == TOPICS:
        check_topic_name(name)
    return NAMES[kind], str(context.node_id) if kind == BROKERS and name else name


def apply_operations(
    kind: int, current: Mapping[str, str], operations: Iterable[tuple[str, str | None, int]]
) -> Steps[dict[str, str]]:
    """The settings after incremental operations. Raises ClientError."""
    settings = dict(current)
    for name, value, operation in operations:
        yield
        if operation == SET:
            settings[name] = value or ""
        elif operation == DELETE:
            settings.pop(name, None)
        elif operation in (APPEND, SUBTRACT):
            key = _list_key(kind, name, operation)
            before = settings.get(name, key.default) or ""
            settings[name] = _edit(before, value or "", operation)
        else:
            raise ClientError(ErrorCode.INVALID_REQUEST, f"Unknown operation {operation}.")
    return settings


def check_lists(kind: int, operations: Iterable[tuple[str, str | None, int]]) -> Steps[None]:
    """Refuse to add to what is no list: before anything else of a resource. Raises ClientError."""
    for name, _, operation in operations:
        yield
        if operation in (APPEND, SUBTRACT) and kind in _KEYS:
            _list_key(kind, name, operation)


def _list_key(kind: int, name: str, operation: int) -> ConfigKey:
    """A key whose value is a list. Apache Kafka's controller knows none of client metrics."""
    key = find_broker_key(name) if kind == BROKERS else _KEYS[kind].get(name)
    if key is None or key.type is not LIST or kind == CLIENT_METRICS:
        verb = "APPEND" if operation == APPEND else "SUBTRACT"
        raise ClientError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {verb} to key {name} because its type is not LIST.",
        )
    return key


def _edit(before: str, value: str, operation: int) -> str:
    entries = [entry for entry in before.split(",") if entry]
    edits = value.split(",")
    if operation == APPEND:
        there = set(entries)
        return ",".join([*entries, *(one for one in dict.fromkeys(edits) if one not in there)])
    doomed = Counter(edits)
    kept = []
    for entry in entries:
        if doomed[entry]:
            doomed[entry] -= 1
        else:
            kept.append(entry)
    return ",".join(kept)


def validate(
    context: Context, kind: int, resource: Resource, settings: Mapping[str, str]
) -> Steps[None]:
    """Check the settings that a resource is to have. Raises ClientError."""
    yield from check_lengths(settings)
    if kind == BROKERS:  # which may have names of their own, for plugins
        _check_records(len(settings))
    try:
        if kind == TOPICS:
            validate_topic(context.config, settings)
        elif kind == BROKERS:
            _validate_broker(context, resource, settings)
        elif kind == GROUPS:
            validate_group(context.config, settings)
        else:
            validate_subscription(settings)
    except ConfigError as error:
        # What does not fit a broker is a bad request, what does not fit others a bad config.
        code = ErrorCode.INVALID_REQUEST if kind == BROKERS else ErrorCode.INVALID_CONFIG
        raise ClientError(code, str(error)) from None
    if kind == TOPICS and resource[1] not in context.image.topics:
        raise ClientError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{resource[1]}' does not exist."
        )


def _validate_broker(context: Context, resource: Resource, settings: Mapping[str, str]) -> None:
    fixed, local = [], []
    for name, value in settings.items():
        key, of_listener = find_broker_key(name), _OF_LISTENER.fullmatch(name)
        if name in THROTTLES:
            parse_value(THROTTLES[name], value)
            continue
        if of_listener is not None:
            if of_listener["base"] not in _SHARED:
                local.append(name)
        elif key is not None and (key.update_mode == READ_ONLY or name in FIXED_HERE):
            fixed.append(name)
        elif key is not None and key.update_mode == PER_BROKER:
            local.append(name)
        if key is not None:
            listener = None if of_listener is None else of_listener["listener"]
            _check_value(context.config, key, name, value, listener)
    if fixed:
        raise ConfigError(f"Cannot update these configs dynamically: [{', '.join(fixed)}]")
    if local and not resource[1]:
        raise ConfigError(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            f"[{', '.join(local)}]"
        )
    _check_effect(context, resource, settings)
    if _MIN_IN_SYNC in settings and resource[1] and _tracks_eligible_leaders(context.services):
        raise ClientError(
            ErrorCode.INVALID_CONFIG,
            f"{_MIN_IN_SYNC} is set for all brokers while {_ELIGIBLE_LEADERS} is in force.",
        )


def _check_value(
    config: BrokerConfig, key: ConfigKey, name: str, value: str, listener: str | None
) -> None:
    """What holds of a value beyond its type; of a listener's only where there is that listener."""
    if key.name == name and name.startswith(("ssl.keystore.", "ssl.truststore.", "ssl.key.")):
        raise ConfigError(f"{name} can be changed for one listener only, by its prefix.")
    if key.type is CLASS and value not in {"", key.default}:
        raise ConfigError(f"{name}: kbroker loads no Java classes")
    if config.words("config.providers"):
        from kbroker.config.providers import refuse_variable  # noqa: PLC0415  few have any

        refuse_variable(name, value)
    parsed = parse_value(key, value)
    if listener is not None and listener.upper() not in {one.name for one in config.listeners}:
        return
    if parsed == 0 and key.name in _POSITIVE:
        raise ConfigError(f"{name} must be at least 1")
    if listener is not None and key.name == _NETWORK_THREADS and isinstance(parsed, int):
        _check_threads(name, int(config.text_of(listener, key.name) or 0), parsed)


def _check_threads(name: str, before: int, after: int) -> None:
    """None at all, as earlier versions let it become, may become any number."""
    if before and not before // 2 <= after <= before * 2:
        raise ConfigError(
            f"{name} can change from {before} to no less than half and no more than double."
        )


def _check_effect(context: Context, resource: Resource, settings: Mapping[str, str]) -> None:
    """Refuse what would not fit together, numbers of threads that jump, and certificates that
    cannot be used."""
    config = context.config
    if resource[1]:
        wanted = config.preview(settings, config.dynamic_default)
    else:
        wanted = config.preview(config.dynamic_broker, settings)
    wanted.check_values()
    _check_cleaner(config, wanted)
    for name in _THREADS:
        _check_threads(name, config.integer(name), wanted.integer(name))
    if context.services.tls is not None:
        context.services.tls.check(wanted)
    for listener in config.listeners:
        if listener.protocol.startswith("SASL"):
            _check_logins(wanted, listener.name)


def _check_cleaner(config: BrokerConfig, wanted: BrokerConfig) -> None:
    """Without a thread nothing is compacted any more. A 0 that is there already refuses no other
    change: the cleaner takes it as 1."""
    before, after = config.integer(_CLEANER_THREADS), wanted.integer(_CLEANER_THREADS)
    if config.flag("log.cleaner.enable") and after < min(before, 1):
        raise ConfigError("Log cleaner threads should be at least 1")


def _check_logins(wanted: BrokerConfig, listener: str) -> None:
    """Refuse what would let nobody in: here mechanisms change at once. Apache Kafka takes anything,
    which holds, or keeps it from starting, the next time."""
    from kbroker.security.authentication import check_listener  # noqa: PLC0415  not everybody's

    check_listener(wanted, listener)


def _tracks_eligible_leaders(services: Services) -> bool:
    return services.image.features.get(_ELIGIBLE_LEADERS, 0) > 0


def records_of(
    context: Context, kind: int, resource: Resource, settings: Mapping[str, str]
) -> list[Record]:
    """Records that turn the present settings into `settings`. Raises ClientError.

    Settings of brokers are written again where they stay, which makes Apache Kafka reload files
    that they name.
    """
    current = context.image.configs(resource)
    changes: dict[str, str | None] = {
        name: value
        for name, value in settings.items()
        if kind == BROKERS or current.get(name) != value
    }
    changes.update(dict.fromkeys(name for name in current if name not in settings))
    tracks = _tracks_eligible_leaders(context.services)
    if resource == ("broker", "") and changes.get(_MIN_IN_SYNC, "") is None and tracks:
        raise ClientError(
            ErrorCode.INVALID_CONFIG,
            f"{_MIN_IN_SYNC} cannot be removed while {_ELIGIBLE_LEADERS} is in force.",
        )
    records = builders.alter_configs(resource, changes)
    if _MIN_IN_SYNC in changes and tracks:
        records.append(ClearElrRecord(resource[1] if kind == TOPICS else ""))
    return records


def require_altering(context: Context, asked: Any, *, before: bool) -> None:
    """Refuse who may not change the settings of a resource: before they are looked at, but those of
    brokers behind it, as Apache Kafka's broker looks at them and its controller at rights. Raises
    ClientError."""
    if before != (asked.resource_type == BROKERS):
        require_configs(context, ALTER_CONFIGS, asked.resource_type, asked.resource_name)


def take_effect(
    context: Context, records: list[Record], changed: list[Resource]
) -> Steps[None]:
    """Write the changes and publish them, until the logs have them. Raises ClientError."""
    services = context.services
    configured: list[Completion[None]] = []
    if not records:
        return
    _check_records(len(records))
    differing = _differing(context, records)

    def follow() -> None:
        for (kind, name), settings in differing.items():
            context.changed("settings changed", kind=kind, name=name, settings=",".join(settings))
        if any(kind == NAMES[CLIENT_METRICS] for kind, _ in changed):
            services.telemetry.subscriptions_changed()
        if any(kind == "broker" for kind, _ in changed):
            configured.append(publish.reload_broker_settings(services))
        else:
            names = [name for kind, name in changed if kind == "topic"]
            configured.append(publish.configure_topics(services, names))

    yield services.store.append(records, follow)
    yield joined(configured)


def _check_records(count: int) -> None:
    """Refuse a request of more changes than Apache Kafka's controller makes of one."""
    if count > CHANGES_PER_REQUEST_MAX_COUNT:
        raise ClientError(
            ErrorCode.POLICY_VIOLATION, "Unable to perform excessively large batch operation."
        )


def _differing(context: Context, records: Iterable[Record]) -> dict[Resource, list[str]]:
    """By resource the names of settings that get another value, before they do. Names alone: a
    value may be a secret."""
    found: dict[Resource, list[str]] = {}
    for record in records:
        if isinstance(record, ConfigRecord):
            resource = NAMES[record.resource_type], record.resource_name
            if context.image.configs(resource).get(record.name) != record.value:
                found.setdefault(resource, []).append(record.name)
    return found
