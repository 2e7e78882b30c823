"""Results that follow from a topic's overrides and the broker's settings, computed once for all
topics with equal overrides."""

from __future__ import annotations

import pytest

from kbroker.api.config_entries import created_configs
from kbroker.config import BrokerConfig, ConfigError
from kbroker.config import broker as broker_settings
from kbroker.config.topic import effective, log_config, validate_topic

DAY_MS = 86_400_000


def test_topics_with_equal_overrides_share_the_result() -> None:
    config = BrokerConfig({})
    for what in (effective, log_config, created_configs):
        first = what(config, {"retention.ms": "7", "segment.ms": "9"})
        assert what(config, {"segment.ms": "9", "retention.ms": "7"}) is first
        assert what(config, {"retention.ms": "8", "segment.ms": "9"}) != first
    assert log_config(config, {}, 1 << 26) != log_config(config, {}, 1 << 34)


@pytest.mark.parametrize("change", ["dynamic", "static"])
def test_a_change_of_the_broker_changes_the_result(change: str) -> None:
    config = BrokerConfig({"log.retention.ms": str(DAY_MS)})
    assert log_config(config, {})["retention_ms"] == DAY_MS
    wide = config.preview({}, {"log.retention.ms": "5"})
    assert log_config(wide, {})["retention_ms"] == 5
    assert log_config(config, {})["retention_ms"] == DAY_MS
    if change == "dynamic":
        config.set_dynamic({}, {"log.retention.ms": "6"})
    else:
        config.replace_static({"log.retention.ms": "6"}, BrokerConfig({"log.retention.ms": "6"}))
    assert log_config(config, {})["retention_ms"] == effective(config, {})["retention.ms"] == 6
    created = {one["name"]: one["value"] for one in created_configs(config, {})}
    assert created["retention.ms"] == "6"


def test_overrides_that_are_wrong_are_refused_each_time() -> None:
    config = BrokerConfig({})
    for _ in range(2):
        with pytest.raises(ConfigError, match="Unknown topic config name: nope"):
            validate_topic(config, {"nope": "1"})
        with pytest.raises(ConfigError):
            effective(config, {"retention.ms": "x"})
    validate_topic(config, {"retention.ms": "1"})


def test_long_overrides_and_many_different_ones_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(broker_settings, "_DERIVED_MAX", 10)
    config = BrokerConfig({})
    replicas = {"leader.replication.throttled.replicas": "0:1," * 100 + "0:1"}
    assert effective(config, replicas) is not effective(config, replicas)
    first = effective(config, {})
    for number in range(10):
        assert effective(config, {"retention.ms": str(number)})["retention.ms"] == number
    assert effective(config, {}) is not first and effective(config, {}) == first
