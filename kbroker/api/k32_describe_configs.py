"""DescribeConfigs: settings of topics, brokers, groups and client metrics subscriptions.

Behavior: each resource succeeds or fails by itself, answers in the order of the request. One that
is named again is answered once, with the keys of all its mentions: else a small request would be
answered with gigabytes. Null or no keys mean all of a resource. For broker "" only what was set for
all brokers is answered. Settings are sorted by name, internal ones only told where they were set.

Version notes:
  v1: synonyms and sources (KIP-226). v3: types and documentation (KIP-569). v4: flexible.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kbroker.api.config_entries import (
    CLIENT_METRICS_SOURCE,
    DEFAULT,
    DYNAMIC_BROKER_LOGGER,
    DYNAMIC_DEFAULT_BROKER,
    GROUP_SOURCE,
    Synonym,
    broker_key_synonyms,
    broker_value_text,
    described,
    topic_key_synonyms,
    topic_value,
)
from kbroker.api.config_resources import (
    BROKER_LOGGERS,
    BROKERS,
    CLIENT_METRICS,
    GROUPS,
    NAMES,
    TOPICS,
    check_topic_name,
    logger_levels,
    parse_node,
    require_configs,
)
from kbroker.api.context import Context
from kbroker.api.registry import Response, register
from kbroker.config import BrokerConfig
from kbroker.config.definitions import BROKER as BROKER_KEYS
from kbroker.config.definitions import CLIENT_METRICS as CLIENT_METRICS_KEYS
from kbroker.config.definitions import GROUP as GROUP_KEYS
from kbroker.config.definitions import THROTTLES, find_broker_key, group_broker_key
from kbroker.config.definitions import TOPIC as TOPIC_KEYS
from kbroker.config.types import READ_ONLY, ConfigKey
from kbroker.errors import ClientError, ErrorCode
from kbroker.operations import Steps
from kbroker.protocol import ApiKey
from kbroker.security.acls import DESCRIBE_CONFIGS

Entries = list[dict[str, Any]]
Check = Callable[[Context, str], None]
Describe = Callable[[BrokerConfig, Mapping[str, str]], Entries]


def _failed(request: Any, code: int, message: str) -> Response:
    resources = dict.fromkeys((each.resource_type, each.resource_name)
                              for each in request.resources)  # fmt: skip
    return {"results": [_result(resource, [], code, message) for resource in resources]}


@register(ApiKey.DESCRIBE_CONFIGS, 1, 4, failed=_failed)
def describe_configs(request: Any, context: Context) -> Steps[Response]:
    """Answer a DescribeConfigs request."""
    results = []
    made: dict[Any, Entries] = {}
    for resource, keys in (yield from _asked(request)).items():
        yield
        kind, name = resource
        try:
            require_configs(context, DESCRIBE_CONFIGS, kind, name)
            entries = _entries(context, kind, name, made)
        except ClientError as error:
            results.append(_result(resource, [], error.code, str(error)))
            continue
        kept = [entry for entry in entries if not keys or entry["name"] in keys]
        _trim(request, kept)
        results.append(_result(resource, kept, ErrorCode.NONE, ""))
    return {"results": results}


def _entries(context: Context, kind: int, name: str, made: dict[Any, Entries]) -> Entries:
    """The settings of a resource. Most topics have none of their own, and then the same: `made`
    has those of this request by what is set."""
    if kind in _DESCRIBE:
        return _DESCRIBE[kind](context, name)
    if kind not in _BY_OVERRIDES:
        message = f"There are no settings of resource type {kind}."
        raise ClientError(ErrorCode.INVALID_REQUEST, message)
    check, describe = _BY_OVERRIDES[kind]
    check(context, name)
    overrides = context.image.configs((NAMES[kind], name))
    key = kind, *overrides.items()
    if key not in made:
        made[key] = describe(context.config, overrides)
    return made[key]


def _asked(request: Any) -> Steps[dict[tuple[int, str], set[str]]]:
    """The keys that are asked for of each resource, none for all."""
    asked: dict[tuple[int, str], set[str]] = {}
    for one in request.resources:
        yield
        resource, keys = (one.resource_type, one.resource_name), set(one.configuration_keys or ())
        before = asked.get(resource, keys)
        asked[resource] = before | keys if before and keys else set()
    return asked


def _trim(request: Any, entries: Entries) -> None:
    """Leave out what the request did not ask for."""
    for entry in entries:
        if not request.include_synonyms:
            entry["synonyms"] = []
        if not getattr(request, "include_documentation", False):
            entry["documentation"] = None


def _result(resource: tuple[int, str], entries: Entries, code: int, message: str) -> dict[str, Any]:
    return {
        "error_code": code,
        "error_message": message,
        "resource_type": resource[0],
        "resource_name": resource[1],
        "configs": entries,
    }


def _check_topic(context: Context, name: str) -> None:
    check_topic_name(name)
    if name not in context.image.topics:
        raise ClientError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "")


def _topic(config: BrokerConfig, overrides: Mapping[str, str]) -> Entries:
    return [
        described(
            key,
            key.name,
            topic_value(config, overrides, key),
            topic_key_synonyms(config, overrides, key.name),
        )
        for _, key in sorted(TOPIC_KEYS.items())
        if not key.internal or key.name in overrides
    ]


def _broker(context: Context, name: str) -> Entries:
    config = context.config
    if not name:
        defaults = config.dynamic_default
        entries = []
        for key in sorted(defaults):
            found = broker_key_synonyms(config, key)
            only = [one for one in found if one[2] == DYNAMIC_DEFAULT_BROKER]
            entries.append(_broker_entry(key, defaults[key], only))
        return entries
    unexpected = "Unexpected broker id, expected {} or empty string, but received {}"
    parse_node(name, context.node_id, "Broker", unexpected)
    names = {key for key, known in BROKER_KEYS.items() if not known.internal}
    names |= config.static.keys() | config.dynamic_broker.keys() | config.dynamic_default.keys()
    return [
        _broker_entry(key, broker_value_text(config, key), broker_key_synonyms(config, key))
        for key in sorted(names)
    ]


def _broker_entry(name: str, value: str | None, synonyms: list[Synonym]) -> dict[str, Any]:
    known = BROKER_KEYS.get(name) or THROTTLES.get(name)
    fixed = known is None or known.update_mode == READ_ONLY
    told = described(known or find_broker_key(name), name, value, synonyms, read_only=fixed)
    if name in THROTTLES:
        told["documentation"] = None  # nor has Kafka any for what its file cannot hold
    return told


def _broker_logger(context: Context, name: str) -> Entries:
    if not name:
        raise ClientError(ErrorCode.INVALID_REQUEST, "Loggers belong to a broker; name it.")
    unexpected = "Unexpected broker id, expected {} but received {}"
    parse_node(name, context.node_id, "Broker", unexpected)
    return [
        {"name": logger, "value": level, "config_source": DYNAMIC_BROKER_LOGGER}
        for logger, level in logger_levels().items()
    ]


def _check_group(_: Context, name: str) -> None:
    if not name:
        raise ClientError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")


def _group(config: BrokerConfig, overrides: Mapping[str, str]) -> Entries:
    entries = []
    for key_name, key in sorted(GROUP_KEYS.items()):
        broker_key = group_broker_key(key_name)
        if broker_key is None:
            found: list[Synonym] = [(key_name, key.default, DEFAULT)]
            value = key.default
        else:
            found, value = broker_key_synonyms(config, broker_key), config.text(broker_key)
        if key_name in overrides:
            value = overrides[key_name]
            found.insert(0, (key_name, value, GROUP_SOURCE))
        entries.append(described(key, key_name, value, found))
    return entries


def _client_metrics(context: Context, name: str) -> Entries:
    if not name:
        text = "Client metrics subscription name must not be empty"
        raise ClientError(ErrorCode.INVALID_REQUEST, text)
    return _own(CLIENT_METRICS_KEYS, context.image.configs(("client_metrics", name)))


def _own(keys: Mapping[str, ConfigKey], overrides: Mapping[str, str]) -> Entries:
    """Settings that have no counterpart among the broker's."""
    entries = []
    for name, key in sorted(keys.items()):
        found: list[Synonym] = []
        if name in overrides:
            found = [(name, overrides[name], CLIENT_METRICS_SOURCE)]
        entries.append(described(key, name, overrides.get(name, key.default), found))
    return entries


_DESCRIBE: Final[dict[int, Callable[[Context, str], Entries]]] = {
    BROKERS: _broker,
    BROKER_LOGGERS: _broker_logger,
    CLIENT_METRICS: _client_metrics,
}
_BY_OVERRIDES: Final[dict[int, tuple[Check, Describe]]] = {
    TOPICS: (_check_topic, _topic),
    GROUPS: (_check_group, _group),
}
