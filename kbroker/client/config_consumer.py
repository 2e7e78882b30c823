"""Settings of consumers: Apache Kafka 4.3's, librdkafka's queue limit, and their combinations."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping
from typing import Any

from kbroker.client.config_common import ClientConfig, read_common
from kbroker.client.config_types import (
    at_least,
    between,
    boolean,
    int32,
    non_empty,
    offset_reset,
    one_of,
    one_of_any_case,
    plugin,
    plugins,
    string,
)
from kbroker.client.errors import ConfigError

__all__ = ["ConsumerConfig", "consumer_config"]

# What the broker decides, and what the members, in each protocol.
_NOT_CONSUMER = ("partition_assignment_strategy", "heartbeat_interval_ms", "session_timeout_ms")
_NOT_CLASSIC = ("group_remote_assignor",)

_numbers = itertools.count(1)


# fmt: off
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ConsumerConfig(ClientConfig):
    """What a consumer is told. enable_auto_commit is False where there is no group."""

    allow_auto_create_topics: bool = boolean(True,
        "Whether brokers may create a topic that is subscribed to and missing.")
    auto_commit_interval_ms: int = int32(5000, at_least(0),
        "How often positions are committed with enable.auto.commit.")
    auto_offset_reset: str = string("latest", offset_reset(),
        "Where a partition is read from that has no committed offset, or one that is gone.")
    check_crcs: bool = boolean(True,
        "Whether the checksum of each batch is verified.")
    client_rack: str = string("",
        "Where this client stands, so that a replica near it can be read (KIP-392).")
    enable_auto_commit: bool = boolean(True,
        "Whether positions are committed in the background.")
    exclude_internal_topics: bool = boolean(True,
        "Whether a subscribed pattern leaves out the brokers' own topics.")
    fetch_max_bytes: int = int32(52_428_800, at_least(0),
        "How much a fetch may bring; the first batch comes whatever its size.")
    fetch_max_wait_ms: int = int32(500, at_least(0),
        "How long a broker waits for fetch.min.bytes.")
    fetch_min_bytes: int = int32(1, at_least(0),
        "A broker answers when it has so much.")
    group_id: str | None = string(None,
        "Name of the group; needed to subscribe and to commit.")
    group_instance_id: str | None = string(None, non_empty(),
        "Name of a static member, which keeps its partitions over a short absence (KIP-345).")
    group_protocol: str = string("classic", one_of_any_case("consumer", "classic"),
        "Who assigns partitions: the members (classic) or the broker (consumer, KIP-848).")
    group_remote_assignor: str | None = string(None,
        "Name of the broker's assignor with group.protocol=consumer; none: the broker's choice.")
    heartbeat_interval_ms: int = int32(3000,
        "How often a classic member tells that it is there.")
    interceptor_classes: tuple[Any, ...] = plugins((),
        "Python objects whose on_consume and on_commit see what passes.")
    internal_throw_on_fetch_stable_offset_unsupported: bool = boolean(False,
        "Kafka Streams' own.", effective=False)
    isolation_level: str = string(
        "read_uncommitted", one_of("read_committed", "read_uncommitted"),
        "Whether records of open and of aborted transactions are left out.")
    key_deserializer: Any = plugin(None,
        "Callable that makes an object of a key's bytes; none: bytes.")
    max_partition_fetch_bytes: int = int32(1_048_576, at_least(0),
        "How much a fetch may bring of one partition.")
    max_poll_interval_ms: int = int32(300_000, at_least(1),
        "A member that does not poll for so long loses its partitions.")
    max_poll_records: int = int32(500, at_least(1),
        "How many records poll() gives at most.")
    partition_assignment_strategy: tuple[Any, ...] = plugins(("range", "cooperative-sticky"),
        "Assignors of a classic group in order of preference: range, roundrobin, sticky, "
        "cooperative-sticky, Kafka's class names of these, or Python objects.")
    session_timeout_ms: int = int32(45_000,
        "A classic member not heard of for so long is out.")
    share_acknowledgement_mode: str = string("implicit", one_of("implicit", "explicit"),
        "For share groups, which are not offered.", effective=False)
    share_acquire_mode: str = string(
        "BATCH_OPTIMIZED", one_of_any_case("batch_optimized", "record_limit"),
        "For share groups, which are not offered.", effective=False)
    value_deserializer: Any = plugin(None,
        "Callable that makes an object of a value's bytes; none: bytes.")

    # librdkafka's names
    queued_max_messages_kbytes: int = int32(65536, between(1, 2_097_151),
        "How many KiB are fetched ahead of the application.")
# fmt: on


def consumer_config(given: Mapping[str, Any] | None, more: Mapping[str, Any]) -> ConsumerConfig:
    """Settings of a consumer from a dict and keyword arguments; names with dots or underscores.

    Raises ConfigError, naming the setting and what would be right.
    """
    found = read_common(ConsumerConfig, given, more)
    if not found.get("bootstrap_servers"):
        raise ConfigError("bootstrap.servers is not given; write HOST:PORT")
    if found.get("group_id") is None:
        if found.get("enable_auto_commit"):
            raise ConfigError("enable.auto.commit=true needs a group.id")
        found["enable_auto_commit"] = False
    _check_group(found)
    if not found.get("client_id"):
        suffix = found.get("group_instance_id") or next(_numbers)
        found["client_id"] = f"consumer-{found.get('group_id') or 'null'}-{suffix}"
    return ConsumerConfig(**found)


def _check_group(found: dict[str, Any]) -> None:
    protocol = found.get("group_protocol", "classic")
    for name in _NOT_CONSUMER if protocol == "consumer" else _NOT_CLASSIC:
        if name in found:
            raise ConfigError(
                f"{name.replace('_', '.')} has no meaning with group.protocol={protocol}"
            )
    heartbeat = found.get("heartbeat_interval_ms", 3000)
    session = found.get("session_timeout_ms", 45_000)
    if heartbeat >= session:
        raise ConfigError(
            f"heartbeat.interval.ms={heartbeat} must be below session.timeout.ms={session}"
        )
    if "group_id" in found and not found["group_id"]:
        raise ConfigError("group.id must not be empty")
