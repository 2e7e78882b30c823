"""Settings of groups: what may be set on a group, within the bounds that the broker's keys give.

A group key `consumer.heartbeat.interval.ms` takes `group.consumer.heartbeat.interval.ms` where it
is not set, and stays between `group.consumer.min...` and `group.consumer.max...` of the same name.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kbroker.config.broker import BrokerConfig
from kbroker.config.definitions import BROKER, GROUP, group_broker_key
from kbroker.config.group_bounds import GROUP_KINDS
from kbroker.config.types import ConfigError, Value, parse_value

# Bounds whose names do not follow from the key, and keys whose defaults nobody compares with them.
_BOUND: Final = {"streams.num.standby.replicas": "standby.replicas"}
_ONLY_WHERE_SET: Final = "assignment.interval.ms"


def validate_group(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check overrides that are about to be stored. Raises ConfigError as Apache Kafka words it."""
    for name in overrides:
        if name not in GROUP:
            raise ConfigError(f"Unknown group config name: {name}")
    values = {name: _value(config, overrides, name) for name in GROUP}
    for name, value in values.items():
        if isinstance(value, int) and (name in overrides or not name.endswith(_ONLY_WHERE_SET)):
            _check_bounds(config, name, value)
    for kind in GROUP_KINDS:
        session, heartbeat = f"{kind}.session.timeout.ms", f"{kind}.heartbeat.interval.ms"
        silent, beat = values[session], values[heartbeat]
        if isinstance(silent, int) and isinstance(beat, int) and silent <= beat:
            raise ConfigError(f"{session} must be greater than {heartbeat}")


def _value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """What holds for a group with these overrides."""
    if name in overrides:
        return parse_value(GROUP[name], overrides[name])
    broker = group_broker_key(name)
    return parse_value(GROUP[name], GROUP[name].default) if broker is None else config.value(broker)


def _check_bounds(config: BrokerConfig, name: str, value: int) -> None:
    kind, _, rest = name.partition(".")
    rest = _BOUND.get(name, rest)
    least, most = f"group.{kind}.min.{rest}", f"group.{kind}.max.{rest}"
    if least in BROKER and value < config.integer(least):
        raise ConfigError(f"{name} must be greater than or equal to {least}")
    if most in BROKER and value > config.integer(most):
        raise ConfigError(f"{name} must be less than or equal to {most}")
