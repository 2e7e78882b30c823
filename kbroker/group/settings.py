"""What the broker's settings say about groups, as plain numbers; taken over again when they change.

Names are Kafka's keys with underscores. What a group itself may set (GROUP configs) is asked of
`configs_of`, which knows the dynamic settings of the metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kbroker.config import BrokerConfig

GroupConfigs = Mapping[str, str]


def _no_group_configs(group_id: str) -> GroupConfigs:
    return {}


class GroupSettings(NamedTuple):
    """Defaults are those of Apache Kafka 4.3; milliseconds and bytes."""

    group_min_session_timeout_ms: int = 6_000
    group_max_session_timeout_ms: int = 1_800_000
    group_max_size: int = (1 << 31) - 1
    group_initial_rebalance_delay_ms: int = 3_000
    group_consumer_session_timeout_ms: int = 45_000
    group_consumer_min_session_timeout_ms: int = 45_000
    group_consumer_max_session_timeout_ms: int = 60_000
    group_consumer_heartbeat_interval_ms: int = 5_000
    group_consumer_min_heartbeat_interval_ms: int = 5_000
    group_consumer_max_heartbeat_interval_ms: int = 15_000
    group_consumer_assignment_interval_ms: int = 1_000
    group_consumer_min_assignment_interval_ms: int = 0
    group_consumer_max_assignment_interval_ms: int = 15_000
    group_consumer_max_size: int = (1 << 31) - 1
    group_consumer_assignors: tuple[str, ...] = ("uniform", "range")
    group_consumer_migration_policy: str = "bidirectional"
    group_consumer_regex_refresh_interval_ms: int = 600_000
    offset_metadata_max_bytes: int = 4_096
    offsets_commit_timeout_ms: int = 5_000
    offsets_retention_minutes: int = 10_080
    offsets_retention_check_interval_ms: int = 600_000
    configs_of: Callable[[str], GroupConfigs] = _no_group_configs


def settings_of(config: BrokerConfig, configs_of: Callable[[str], GroupConfigs]) -> GroupSettings:
    """What the broker's settings say now; `configs_of` knows the GROUP configs by group id."""
    values: dict[str, object] = {}
    for name in GroupSettings._fields:
        key = name.replace("_", ".")
        if name != "configs_of":
            value = config.value(key)
            values[name] = tuple(value) if isinstance(value, list) else value
    policy = str(values["group_consumer_migration_policy"])  # taken in any case
    values["group_consumer_migration_policy"] = policy.lower()
    return GroupSettings(**values, configs_of=configs_of)  # type: ignore[arg-type]
