"""Options of reads and writes: the official connector's by name, meaning and default.

Spark hands them over with their names in lower case. What is checked here is what can be without
a broker; `kafka.*` are the clients' own settings (see client_settings).
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kbroker.client.config import (
    AdminConfig,
    ConfigError,
    ConsumerConfig,
    ProducerConfig,
    admin_config,
    consumer_config,
    producer_config,
)
from kbroker.client.config_types import specs_of
from kbroker.client.offsets import EARLIEST, LATEST
from pyspark_kbroker.errors import OptionError, nearest
from pyspark_kbroker.offsets import (
    ASSIGN,
    INT32_MAX,
    INT64_MAX,
    SUBSCRIBE,
    SUBSCRIBE_PATTERN,
    Bound,
    Subscription,
    bound_of_json,
    partitions_of_json,
)

__all__ = ["ReadOptions", "WriteOptions", "client_settings", "read_options",
           "transactional_settings", "write_options"]  # fmt: skip

_STRATEGIES = (SUBSCRIBE, SUBSCRIBE_PATTERN, ASSIGN)
_STARTING = ("startingTimestamp", "startingOffsetsByTimestamp", "startingOffsets")
_ENDING = ("endingTimestamp", "endingOffsetsByTimestamp", "endingOffsets")

# All that a read or a write may be told; what only the other one knows is let pass, as the
# official connector does, so that both can be given the same options.
_KNOWN = (
    *_STRATEGIES,
    *_STARTING,
    *_ENDING,
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "includeHeaders",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "topic",
    "kbroker.exactlyOnce",
)
# Spark's own, which it hands over with the others.
_IDLE = (
    "path",
    "checkpointLocation",
    "queryName",
    "outputMode",
    "mode",
    "asyncProgressTrackingEnabled",
    "asyncProgressTrackingCheckpointIntervalMs",
    "_asyncProgressTrackingOverrideSinkSupportCheck",
)
# Settings of clients that are not the user's to make, and what to do instead; those of a write are
# let pass by a read, and the other way round.
_READ_BY_US = {
    "auto.offset.reset": "use the option startingOffsets",
    "key.deserializer": "keys are bytes; cast the column instead",
    "value.deserializer": "values are bytes; cast the column instead",
    "enable.auto.commit": "Spark keeps offsets in its checkpoint",
    "interceptor.classes": "they could change what is read",
    "group.instance.id": "a read is no member of a group",
}
_WRITTEN_BY_US = {
    "key.serializer": "make the column a string or bytes instead",
    "value.serializer": "make the column a string or bytes instead",
    "interceptor.classes": "no class of Java's can be asked; change the rows instead",
    "transactional.id": "set kbroker.exactlyOnce=true, which makes ids of its own",
}
_OF_JAVA_ALONE = ("auto.include.jmx.reporter",)  # what they ask for is not done, and not missed
_ONE_ID = {"transactional.id": "any"}
# The longest that a broker grants unless told otherwise: an epoch may take long.
_TRANSACTION_TIMEOUT_MS = "900000"
# A task reads one partition in order: more ahead of Spark only touches fresh memory, which is dear.
_READ_AHEAD_KB = "8192"
_KINDS: dict[str, tuple[type[Any], Callable[..., object]]] = {
    "admin": (AdminConfig, admin_config),
    "consumer": (ConsumerConfig, consumer_config),
    "producer": (ProducerConfig, producer_config),
}
_NAMES = {
    kind: {name.replace("_", ".") for name in specs_of(config)}
    for kind, (config, _) in _KINDS.items()
}
_DURATION = re.compile(r"\s*(\d+)\s*(us|ms|s|m|min|h|d|)\s*", re.IGNORECASE)
_DURATION_DIGITS = 18  # what fits into 64 bits
# Numbers that are of 32 bits in the official connector; all others have 64.
_INT32 = frozenset({"minPartitions", "fetchOffset.numRetries"})
_UNIT_S = {"us": 1e-6, "ms": 1e-3, "": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400}


@dataclass(frozen=True)
class ReadOptions:
    """What a read was told. Times in s; None: not told, no limit.

    kafka: settings of clients, without the prefix; passwords are among them. ending: None for a
    stream.
    """

    kafka: Mapping[str, str] = field(repr=False)
    subscription: Subscription
    starting: Bound
    ending: Bound | None
    time_or_latest: bool
    fail_on_data_loss: bool
    include_headers: bool
    min_partitions: int | None
    max_records_per_partition: int | None
    max_offsets: int | None
    min_offsets: int | None
    max_trigger_delay_s: float
    poll_timeout_s: float
    tries: int
    retry_pause_s: float

    @property
    def read_committed(self) -> bool:
        """Whether what transactions left open or aborted is left out."""
        return self.kafka.get("isolation.level", "read_committed") == "read_committed"

    @property
    def starts_at_an_end(self) -> bool:
        """Whether it may begin at the end of a partition as it is when that is asked for."""
        if self.starting.edge is not None or self.starting.offsets is not None:
            return LATEST in (self.starting.edge, *(self.starting.offsets or {}).values())
        return self.time_or_latest


@dataclass(frozen=True)
class WriteOptions:
    """What a write was told. topic: for all rows, whatever their column says."""

    kafka: Mapping[str, str] = field(repr=False)
    topic: str | None
    exactly_once: bool


class _Told:
    """The options by their proper names, each read once."""

    def __init__(self, options: Mapping[str, str], ours: Mapping[str, str]) -> None:
        proper = {name.lower(): name for name in (*_KNOWN, *_IDLE)}
        self.given: dict[str, str] = {}
        self.kafka: dict[str, str] = {}
        for name, value in options.items():
            lower = name.lower()
            if lower.startswith("kafka."):
                self.kafka[lower.removeprefix("kafka.")] = value
            elif lower in proper:
                self.given[proper[lower]] = value
            else:
                raise OptionError(f"there is no option {name}{nearest(name, _suggested())}")
        for name in _OF_JAVA_ALONE:
            self.kafka.pop(name, None)
        self._check_kafka(ours)

    def _check_kafka(self, ours: Mapping[str, str]) -> None:
        for name, instead in ours.items():
            if name in self.kafka:
                raise OptionError(f"kafka.{name} cannot be set: {instead}")
        if not self.kafka.get("bootstrap.servers", "").strip():
            raise OptionError("kafka.bootstrap.servers is not given; write HOST:PORT")

    def boolean(self, name: str, default: bool) -> bool:
        word = self.given.get(name, str(default)).strip().lower()
        if word not in ("true", "false"):
            raise OptionError(f"{name}: {self.given[name]!r} is neither true nor false")
        return word == "true"

    def number(self, name: str, least: int, default: int | None = None) -> int | None:
        if name not in self.given:
            return default
        text = self.given[name].strip()
        try:
            found = int(text)
        except ValueError:
            raise OptionError(f"{name}: {text!r} is no whole number") from None
        if found < least:
            raise OptionError(f"{name}: {found}; {least} is the least")
        most = INT32_MAX if name in _INT32 else INT64_MAX
        if found > most:
            raise OptionError(f"{name}: {found}; {most} is the most")
        return found

    def milliseconds(self, name: str, least: int, default: int) -> float:
        found = self.number(name, least, default)
        assert found is not None
        return found / 1000


def _suggested() -> list[str]:
    return [*_KNOWN, *_IDLE, *(f"kafka.{name}" for names in _NAMES.values() for name in names)]


def _subscription(told: _Told) -> Subscription:
    given = [name for name in _STRATEGIES if name in told.given]
    if len(given) != 1:
        what = f"; both {' and '.join(given)} are given" if given else ""
        raise OptionError(f"give one of the options {', '.join(_STRATEGIES)}{what}")
    by = given[0]
    value = told.given[by]
    if by == ASSIGN:
        return Subscription(by, partitions=partitions_of_json(by, value))
    if by == SUBSCRIBE:
        topics = tuple(sorted({word.strip() for word in value.split(",")} - {""}))
        if not topics:
            raise OptionError(f"{by}: {value!r} names no topic; write names with commas between")
        return Subscription(by, topics=topics)
    pattern = value.strip()
    if not pattern:
        raise OptionError(f"{by}: the pattern is empty")
    try:
        _compiled(pattern)
    except (re.error, FutureWarning) as error:
        raise OptionError(
            f"{by}: {pattern!r} is no pattern of Python's, which is not in all the same as Java's:"
            f" {error}"
        ) from None
    return Subscription(by, pattern=pattern)


def _compiled(pattern: str) -> re.Pattern[str]:
    """Raises FutureWarning as well, for [a&&b] and the like: sets in Java, and not in Python."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", FutureWarning)
        return re.compile(pattern)


def _bound(told: _Told, names: tuple[str, str, str], edge: int) -> Bound:
    """The first of three options that is given, in the official connector's order."""
    by_time, by_times, by_offsets = names
    if by_time in told.given:
        return Bound(by_time, time_ms=told.number(by_time, 0))
    if by_times in told.given:
        return bound_of_json(by_times, told.given[by_times], times=True)
    if by_offsets in told.given:
        return bound_of_json(by_offsets, told.given[by_offsets])
    return Bound(by_offsets, edge=edge)


def _refuse(bound: Bound, edge: int) -> None:
    """A batch cannot begin at the end, nor end at the beginning."""
    word = "latest" if edge == LATEST else "earliest"
    if bound.edge == edge:
        raise OptionError(f"{bound.option}: a batch read cannot have {word} here")
    for where, offset in (bound.offsets or {}).items():
        if offset == edge:
            raise OptionError(f"{bound.option}: {where}: a batch read cannot have {edge} ({word})")


def _ordered(starting: Bound, ending: Bound) -> None:
    """Of what is told twice by the same measure, the end is not before the beginning."""
    told = f"{starting.option} and {ending.option}"
    since, until = starting.time_ms, ending.time_ms
    if since is not None and until is not None and since > until:
        raise OptionError(f"{told}: {since} is after {until}")
    for begins, ends in (
        (starting.offsets, ending.offsets),
        (starting.times_ms, ending.times_ms),
    ):
        for where, begin in (begins or {}).items():
            end = (ends or {}).get(where, LATEST)
            if begin > end >= 0:
                raise OptionError(f"{told}: {where}: {begin} is after {end}")


def _strategy(told: _Told) -> bool:
    name = "startingOffsetsByTimestampStrategy"
    word = told.given.get(name, "error").strip().lower()
    if word not in ("error", "latest"):
        raise OptionError(f"{name}: {told.given[name]!r} is neither error nor latest")
    return word == "latest"


def _duration_s(name: str, text: str) -> float:
    found = _DURATION.fullmatch(text)
    if found is None:
        raise OptionError(f"{name}: {text!r} is no time; write 15m, 30s or 500ms")
    if len(found[1]) > _DURATION_DIGITS:
        raise OptionError(f"{name}: {text!r} is too long a time")
    return int(found[1]) * _UNIT_S[found[2].lower()]


def read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Raises OptionError for what is wrong, with what would be right."""
    told = _Told(options, _READ_BY_US)
    subscription = _subscription(told)
    starting = _bound(told, _STARTING, LATEST if streaming else EARLIEST)
    ending = None if streaming else _bound(told, _ENDING, LATEST)
    if ending is not None:
        _refuse(starting, LATEST)
        _refuse(ending, EARLIEST)
        _ordered(starting, ending)
    for name in _ENDING if streaming else ():
        if name in told.given:
            raise OptionError(f"{name}: a stream has no end; it is for batch reads")
    least, most = (
        told.number(name, 1) for name in ("minOffsetsPerTrigger", "maxOffsetsPerTrigger")
    )
    if least is not None and most is not None and least > most:
        raise OptionError(f"minOffsetsPerTrigger={least} is above maxOffsetsPerTrigger={most}")
    retries = told.number("fetchOffset.numRetries", 0, 3)
    assert retries is not None
    found = ReadOptions(
        kafka=told.kafka,
        subscription=subscription,
        starting=starting,
        ending=ending,
        time_or_latest=_strategy(told),
        fail_on_data_loss=told.boolean("failOnDataLoss", True),
        include_headers=told.boolean("includeHeaders", False),
        min_partitions=told.number("minPartitions", 1),
        max_records_per_partition=told.number("maxRecordsPerPartition", 1),
        max_offsets=most,
        min_offsets=least,
        max_trigger_delay_s=_duration_s(
            "maxTriggerDelay", told.given.get("maxTriggerDelay", "15m")
        ),
        poll_timeout_s=told.milliseconds("kafkaConsumer.pollTimeoutMs", 1, 120_000),
        tries=retries + 1,
        retry_pause_s=told.milliseconds("fetchOffset.retryIntervalMs", 0, 1000),
    )
    for kind in ("admin", "consumer"):
        client_settings(found.kafka, kind)
    return found


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """As read_options."""
    told = _Told(options, _WRITTEN_BY_US)
    topic = told.given.get("topic")
    if topic is not None:
        topic = topic.strip()
        if not topic:
            raise OptionError("topic: the name is empty")
    exactly_once = told.boolean("kbroker.exactlyOnce", False)
    client_settings(told.kafka, "producer", **(_ONE_ID if exactly_once else {}))
    return WriteOptions(told.kafka, topic, exactly_once)


def transactional_settings(kafka: Mapping[str, str], name: str) -> dict[str, Any]:
    """Those of a producer with that transactional id."""
    return client_settings(kafka, "producer", **{"transactional.id": name})


def client_settings(kafka: Mapping[str, str], kind: str, **more: str) -> dict[str, Any]:
    """Those of the settings that a kind of client has: admin, consumer or producer, and `more` of
    ours. A name that no client has raises OptionError, as does a value that the client refuses."""
    every = set().union(*_NAMES.values())
    for name in kafka:
        if name not in every:
            near = nearest(name, every).replace("mean ", "mean kafka.")
            raise OptionError(f"no client has a setting kafka.{name}{near}")
    settings: dict[str, Any] = {name: kafka[name] for name in kafka if name in _NAMES[kind]}
    settings.pop("group.id", None)  # a read is no member of a group
    if "transactional.id" in more:
        settings = {"transaction.timeout.ms": _TRANSACTION_TIMEOUT_MS, **settings, **more}
    if kind == "consumer":
        settings = {
            "isolation.level": "read_committed",
            "queued.max.messages.kbytes": _READ_AHEAD_KB,
            **settings,
            "auto.offset.reset": "none",
            "allow.auto.create.topics": "false",
        }
    try:
        _KINDS[kind][1](settings, {})
    except ConfigError as error:
        raise OptionError(f"kafka.{error}") from None
    return settings
