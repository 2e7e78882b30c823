"""Settings of topics: what holds for a topic, and in which units the log wants it.

A topic setting without an override takes the broker's key of the same meaning (its synonym), in
whatever unit that was given.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kbroker.config.broker import BrokerConfig
from kbroker.config.definitions import TOPIC
from kbroker.config.types import ConfigError, ConfigKey, Value, parse_value

T = TypeVar("T")
_SHARED_CHARS_MAX: Final = 200

# The broker key that DescribeConfigs names for each topic setting.
BROKER_SYNONYM: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}

_IN_UNITS: Final[dict[str, Callable[[BrokerConfig], int]]] = {
    "flush.ms": BrokerConfig.flush_ms,
    "retention.ms": BrokerConfig.retention_ms,
    "segment.jitter.ms": BrokerConfig.roll_jitter_ms,
    "segment.ms": BrokerConfig.roll_ms,
}

# Segments that adaptive sizes make of what is to be kept, and the least bytes of one.
_SEGMENTS_WANTED: Final = 4
_SEGMENT_BYTES_MIN: Final = 1 << 20
# ... and the least age at which one is closed: a roll makes four files.
_SEGMENT_AGE_MS_MIN: Final = 10_000

_COMPRESSION: Final = {
    "producer": -1,
    "uncompressed": 0,
    "gzip": 1,
    "snappy": 2,
    "lz4": 3,
    "zstd": 4,
}

# Compression levels as the codecs take them; gzip's -1 is its own default.
_LEVEL_KEY: Final = {
    "gzip": "compression.gzip.level",
    "lz4": "compression.lz4.level",
    "zstd": "compression.zstd.level",
}


def broker_value(config: BrokerConfig, key: ConfigKey) -> Value:
    """What a topic without an override takes for `key`."""
    if key.name in _IN_UNITS:
        return _IN_UNITS[key.name](config)
    synonym = BROKER_SYNONYM.get(key.name)
    return parse_value(key, key.default) if synonym is None else config.value(synonym)


def effective(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Value]:
    """Every topic setting as it holds for a topic with these overrides.

    Raises ConfigError where an override does not parse. Topics with equal overrides share the
    result, which nobody changes.
    """
    return shared(
        config, "effective", overrides,
        lambda: {name: effective_value(config, overrides, name) for name in TOPIC},
    )  # fmt: skip


def shared(
    config: BrokerConfig,
    what: str,
    overrides: Mapping[str, str],
    compute: Callable[[], T],
    share: int = -1,
) -> T:
    """What `compute` returns for a topic with these overrides: computed once for all topics that
    have them, unless they are so long that keeping them is no gain."""
    if any(len(text) > _SHARED_CHARS_MAX for text in overrides.values()):
        return compute()
    return config.derived((what, frozenset(overrides.items()), share), compute)


def effective_value(config: BrokerConfig, overrides: Mapping[str, str], name: str) -> Value:
    """One of them."""
    key = TOPIC[name]
    return parse_value(key, overrides[name]) if name in overrides else broker_value(config, key)


def validate_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    """Check overrides that are about to be stored. Raises ConfigError as Apache Kafka words it."""
    for name in overrides:
        if name not in TOPIC:
            raise ConfigError(f"Unknown topic config name: {name}")
    shared(config, "valid", overrides, lambda: _validate_topic(config, overrides))


def _validate_topic(config: BrokerConfig, overrides: Mapping[str, str]) -> None:
    values = effective(config, overrides)
    shortest, longest = values["min.compaction.lag.ms"], values["max.compaction.lag.ms"]
    if isinstance(shortest, int) and isinstance(longest, int) and shortest > longest:
        raise ConfigError(
            f"conflict topic config setting min.compaction.lag.ms ({shortest}) > "
            f"max.compaction.lag.ms ({longest})"
        )
    if values["remote.storage.enable"]:
        raise ConfigError(
            "Tiered Storage functionality is disabled in the broker. "
            "Topic cannot be configured with remote log storage."
        )


def adaptive_segment_bytes(
    config: BrokerConfig, overrides: Mapping[str, str], values: Mapping[str, Value], share: int
) -> int:
    """segment.bytes as the log takes it: what was set, else Kafka's default cut down by the rule of
    kbroker.segment.bytes.adaptive. `share`: a partition's of what the disk's limits leave; -1
    where there is no limit, or nobody knows."""
    size, retention, batch = (
        _whole(values, name) for name in ("segment.bytes", "retention.bytes", "max.message.bytes")
    )
    said = "segment.bytes" in overrides or config.is_set("log.segment.bytes")
    if said or not config.flag("kbroker.segment.bytes.adaptive"):
        return size
    policies = values["cleanup.policy"]
    deletes = isinstance(policies, list) and "delete" in policies
    bounds = [retention] if retention >= 0 and deletes else []
    if share >= 0:
        bounds.append(share)
    least = max(_SEGMENT_BYTES_MIN, batch)
    return min([size, *(max(bound // _SEGMENTS_WANTED, least) for bound in bounds)])


def adaptive_segment_age_ms(
    config: BrokerConfig, overrides: Mapping[str, str], values: Mapping[str, Value]
) -> int:
    """Age at which the segment of a topic that deletes is closed, so that retention.ms finds closed
    ones while records keep coming; -1 for any, as where segment.ms was set."""
    retention_ms = _whole(values, "retention.ms")
    said = "segment.ms" in overrides or any(map(config.is_set, ("log.roll.ms", "log.roll.hours")))
    adapts = config.flag("kbroker.segment.bytes.adaptive") and not said
    if not adapts or retention_ms < 0 or values["cleanup.policy"] != ["delete"]:
        return -1
    return max(retention_ms // _SEGMENTS_WANTED, _SEGMENT_AGE_MS_MIN)


def _whole(values: Mapping[str, Value], name: str) -> int:
    value = values[name]
    if isinstance(value, int):
        return int(value)
    raise TypeError(f"{name} is no whole number")


def log_config(
    config: BrokerConfig, overrides: Mapping[str, str], share: int = -1
) -> dict[str, int]:
    """The settings that a log takes (see kbroker.ext.log), all whole numbers. `share`: of the disk,
    see adaptive_segment_bytes. Topics with equal overrides share the result, which nobody
    changes."""
    return shared(
        config, "log", overrides, lambda: _log_config(config, overrides, share), share
    )


def _log_config(
    config: BrokerConfig, overrides: Mapping[str, str], share: int
) -> dict[str, int]:
    values = effective(config, overrides)

    def number(name: str) -> int:
        return _whole(values, name)

    policy = values["cleanup.policy"]
    policies = policy if isinstance(policy, list) else []
    codec = str(values["compression.type"])
    internal = values["internal.segment.bytes"]
    segment = adaptive_segment_bytes(config, overrides, values, share)
    return {
        "segment_bytes": segment if internal is None else number("internal.segment.bytes"),
        # A segment that takes batches is not cleaned: it has to end before their time is over.
        "segment_ms": min(number("segment.ms"), number("max.compaction.lag.ms"))
        if "compact" in policies
        else number("segment.ms"),
        "segment_jitter_ms": number("segment.jitter.ms"),
        "segment_age_ms": adaptive_segment_age_ms(config, overrides, values),
        "index_interval_bytes": number("index.interval.bytes"),
        "segment_index_bytes": number("segment.index.bytes"),
        "retention_ms": number("retention.ms"),
        "retention_bytes": number("retention.bytes"),
        "max_message_bytes": number("max.message.bytes"),
        "timestamp_type": int(values["message.timestamp.type"] == "LogAppendTime"),
        "timestamp_before_max_ms": number("message.timestamp.before.max.ms"),
        "timestamp_after_max_ms": number("message.timestamp.after.max.ms"),
        "compression_type": _COMPRESSION[codec],
        "compression_level": number(_LEVEL_KEY[codec]) if codec in _LEVEL_KEY else 0,
        "cleanup_delete": int("delete" in policies),
        "cleanup_compact": int("compact" in policies),
        "flush_messages": number("flush.messages"),
        "flush_ms": number("flush.ms"),
        "file_delete_delay_ms": number("file.delete.delay.ms"),
        "min_insync_replicas": number("min.insync.replicas"),
        "producer_id_expiration_ms": config.integer("producer.id.expiration.ms"),
        "delete_retention_ms": number("delete.retention.ms"),
        "min_compaction_lag_ms": number("min.compaction.lag.ms"),
        "max_compaction_lag_ms": number("max.compaction.lag.ms"),
        "min_cleanable_ppb": round(float(str(values["min.cleanable.dirty.ratio"])) * 1_000_000_000),
        "preallocate": number("preallocate"),
    }
