"""Settings as DescribeConfigs and CreateTopics answer them: value, source, synonyms."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kbroker.config import BrokerConfig
from kbroker.config.broker import broker_synonyms
from kbroker.config.definitions import BROKER, TOPIC
from kbroker.config.topic import BROKER_SYNONYM, broker_value, shared
from kbroker.config.types import ConfigKey, format_value, parse_value

# Sources as the wire has them (KIP-226, KIP-714, KIP-1043).
TOPIC_SOURCE: Final = 1
DYNAMIC_BROKER: Final = 2
DYNAMIC_DEFAULT_BROKER: Final = 3
STATIC_BROKER: Final = 4
DEFAULT: Final = 5
DYNAMIC_BROKER_LOGGER: Final = 6
CLIENT_METRICS_SOURCE: Final = 7
GROUP_SOURCE: Final = 8

# Apache Kafka has no default for these and demands them; kbroker's defaults are not shown.
_WITHOUT_DEFAULT: Final = frozenset({"node.id", "process.roles", "controller.listener.names"})

Synonym = tuple[str, str | None, int]


def broker_layers(config: BrokerConfig, names: tuple[str, ...]) -> list[Synonym]:
    """(name, text, source) wherever one of `names` is set, the one that counts most first."""
    defaults = {
        name: BROKER[name].default
        for name in names
        if name in BROKER and (name not in _WITHOUT_DEFAULT or name not in config.static)
    }
    layers: tuple[tuple[Mapping[str, str | None], int], ...] = (
        (dict(config.dynamic_broker), DYNAMIC_BROKER),
        (dict(config.dynamic_default), DYNAMIC_DEFAULT_BROKER),
        (dict(config.static), STATIC_BROKER),
        (defaults, DEFAULT),
    )
    return [
        (name, layer[name], source)
        for layer, source in layers
        for name in names
        if layer.get(name) is not None
    ]


def broker_key_synonyms(config: BrokerConfig, name: str) -> list[Synonym]:
    """The synonyms that DescribeConfigs lists for a broker key.

    They begin with `name` itself: where only another unit is set, there are none.
    """
    found = broker_layers(config, broker_synonyms(name))
    start = next((at for at, one in enumerate(found) if one[0] == name), len(found))
    return found[start:]


def topic_key_synonyms(
    config: BrokerConfig, overrides: Mapping[str, str], name: str
) -> list[Synonym]:
    """The synonyms of a topic setting: its override, then those of the broker key."""
    broker = BROKER_SYNONYM.get(name)
    found = [] if broker is None else broker_key_synonyms(config, broker)
    if name in overrides:
        shown = format_value(parse_value(TOPIC[name], overrides[name]))
        found.insert(0, (name, shown, TOPIC_SOURCE))
    return found


def topic_value(config: BrokerConfig, overrides: Mapping[str, str], key: ConfigKey) -> str | None:
    """The value of a topic setting that holds, as shown."""
    if key.name in overrides:
        return format_value(parse_value(key, overrides[key.name]))
    return format_value(broker_value(config, key))


def topic_source(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> int:
    """Where the value of a topic setting comes from, whatever unit it was given in."""
    if name in overrides:
        return TOPIC_SOURCE
    broker = BROKER_SYNONYM.get(name)
    found = [] if broker is None else broker_layers(config, broker_synonyms(broker))
    return found[0][2] if found else DEFAULT


def created_configs(
    config: BrokerConfig, overrides: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    """The settings in a CreateTopics answer, sorted by name. Topics with equal overrides share
    them."""
    return shared(config, "created", overrides, lambda: _created_configs(config, overrides))


def _created_configs(
    config: BrokerConfig, overrides: Mapping[str, str]
) -> tuple[dict[str, Any], ...]:
    return tuple(
        {
            "name": name,
            "value": topic_value(config, overrides, key),
            "config_source": topic_source(config, overrides, name),
        }
        for name, key in sorted(TOPIC.items())
        if not key.internal or name in overrides
    )


def described(
    key: ConfigKey | None,
    name: str,
    value: str | None,
    synonyms: list[Synonym],
    *,
    read_only: bool = False,
) -> dict[str, Any]:
    """One setting of a DescribeConfigs answer, with all that any version or request wants."""
    # A key that nobody defined may be a secret of a plugin.
    sensitive = key is None or key.sensitive
    return {
        "name": name,
        "value": None if sensitive else value,
        "read_only": read_only,
        "config_source": synonyms[0][2] if synonyms else DEFAULT,
        "is_sensitive": sensitive,
        "synonyms": [
            {"name": other, "value": None if sensitive else text, "source": source}
            for other, text, source in synonyms
        ],
        "config_type": 0 if key is None else int(key.type),
        "documentation": None if key is None or key.name != name else key.doc,
    }


def broker_value_text(config: BrokerConfig, name: str) -> str | None:
    """The value of a broker key that holds, as shown; one of a listener's as it was set."""
    text = config.text(name)
    key = BROKER.get(name)
    return text if key is None else format_value(parse_value(key, text))
