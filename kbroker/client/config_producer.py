"""Settings of producers: Apache Kafka 4.3's, and what they may not be together."""

from __future__ import annotations

import dataclasses
import itertools
import logging
from collections.abc import Mapping
from typing import Any

from kbroker.client.config_common import ClientConfig, read_common
from kbroker.client.config_types import (
    Check,
    at_least,
    between,
    boolean,
    gzip_level,
    int32,
    int64,
    invalid,
    non_empty,
    one_of,
    plugin,
    plugins,
    string,
)
from kbroker.client.errors import ConfigError
from kbroker.limits import STRING_LENGTH_MAX_BYTES

__all__ = ["ProducerConfig", "producer_config"]

_IN_FLIGHT_MAX = 5  # as many batches of a producer as brokers remember for each partition

_log = logging.getLogger("kbroker.client.config")
_numbers = itertools.count(1)


def _acks() -> Check:
    known = {"all": -1, "-1": -1, "0": 0, "1": 1}

    def apply(value: str) -> int:
        if value.lower() not in known:
            raise ValueError("must be all, 1 or 0")
        return known[value.lower()]

    return Check("[all, -1, 0, 1]", apply)


# fmt: off
@dataclasses.dataclass(frozen=True, slots=True, kw_only=True, repr=False, eq=False)
class ProducerConfig(ClientConfig):
    """What a producer is told. delivery_timeout_ms is at least linger_ms + request_timeout_ms."""

    acks: int = string(-1, _acks(),
        "Who must have a batch before it counts as delivered: all (-1) in-sync replicas, the "
        "leader (1), nobody (0).")
    batch_size: int = int32(16384, at_least(0),
        "A partition's batch is sent when it has so many bytes.")
    buffer_memory: int = int64(33_554_432, at_least(0),
        "Memory for records that wait to be sent.")
    compression_gzip_level: int = int32(-1, gzip_level(),
        "Level of gzip; -1: zlib's own.")
    compression_lz4_level: int = int32(9, between(1, 17),
        "Level of LZ4.")
    compression_type: str = string("none", one_of("none", "gzip", "snappy", "lz4", "zstd"),
        "How batches are compressed.")
    compression_zstd_level: int = int32(3, between(-131072, 22),
        "Level of zstd.")
    delivery_timeout_ms: int = int32(120_000, at_least(0),
        "Limit from send() to the acknowledgement, retries included.")
    enable_idempotence: bool = boolean(True,
        "Whether brokers drop what a retry would write twice and keep the order.")
    interceptor_classes: tuple[Any, ...] = plugins((),
        "Python objects whose on_send and on_acknowledgement see each record of send(); none of "
        "send_batch().")
    key_serializer: Any = plugin(None,
        "Callable that makes bytes of a key; none: keys are bytes.")
    linger_ms: int = int64(5, at_least(0),
        "How long a batch that is not full waits for more records.")
    max_block_ms: int = int64(60_000, at_least(0),
        "How long send() may wait for memory and for metadata, and init_transactions(), commit(), "
        "abort() and send_offsets_to_transaction() for all that they do, unless told.")
    max_in_flight_requests_per_connection: int = int32(5, at_least(1),
        "How many requests may be unanswered on a connection.")
    max_request_size: int = int32(1_048_576, at_least(0),
        "The largest request, and the largest record before compression.")
    metadata_max_idle_ms: int = int64(300_000, at_least(5000),
        "A topic to which nothing was sent for so long is forgotten.")
    partitioner_adaptive_partitioning_enable: bool = boolean(True,
        "Whether records without a key go less often to brokers that are slow (KIP-794); those of "
        "a topic with more than 256 partitions go to all alike.")
    partitioner_availability_timeout_ms: int = int64(0, at_least(0),
        "A broker that took nothing for so long gets no records without a key, where "
        "partitioner.adaptive.partitioning.enable tells brokers apart; 0: never so.")
    partitioner_class: Any = plugin(None,
        "Name of a partitioner, or a callable (topic, key, value, partitions) -> int; none: by "
        "the key's murmur2 hash, without a key sticky.")
    partitioner_ignore_keys: bool = boolean(False,
        "Whether records with a key are spread as those without.")
    receive_buffer_bytes: int = int32(32768, at_least(-1),
        "SO_RCVBUF of connections; -1, or where it is not set: the system's, which grows.")
    transaction_timeout_ms: int = int32(60_000,
        "A transaction left open for so long is aborted by the coordinator.")
    transaction_two_phase_commit_enable: bool = boolean(False,
        "Whether an external coordinator decides about transactions (KIP-939).")
    transactional_id: str | None = string(None, non_empty(),
        "Name under which a producer's transactions go on over restarts.")
    value_serializer: Any = plugin(None,
        "Callable that makes bytes of a value; none: values are bytes.")
# fmt: on


def producer_config(given: Mapping[str, Any] | None, more: Mapping[str, Any]) -> ProducerConfig:
    """Settings of a producer from a dict and keyword arguments; names with dots or underscores.

    Raises ConfigError, naming the setting and what would be right.
    """
    found = read_common(ProducerConfig, given, more)
    if not found.get("bootstrap_servers"):
        raise ConfigError("bootstrap.servers is not given; write HOST:PORT")
    _check_idempotence(found)
    _check_delivery(found)
    _check_transactional_id(found)
    if not found.get("client_id"):
        found["client_id"] = _client_id(found.get("transactional_id"))
    return ProducerConfig(**found)


def _check_transactional_id(found: dict[str, Any]) -> None:
    name = found.get("transactional_id") or ""
    try:
        size = len(name.encode())
    except UnicodeEncodeError:
        raise invalid("transactional.id", name, "cannot be written in UTF-8") from None
    if size > STRING_LENGTH_MAX_BYTES:
        raise ConfigError(f"transactional.id has {size} bytes: at most {STRING_LENGTH_MAX_BYTES}")


def _client_id(transactional_id: str | None) -> str:
    """Of who gave none: by the transactional id, where that leaves room."""
    named = f"producer-{transactional_id}"
    if transactional_id and len(named.encode()) <= STRING_LENGTH_MAX_BYTES:
        return named
    return f"producer-{next(_numbers)}"


def _check_idempotence(found: dict[str, Any]) -> None:
    """Idempotence needs acks=all, retries and few requests in flight. Asked for together with what
    forbids it, it is an error; by default only, it is switched off as Kafka does."""
    if found.get("enable_idempotence", True):
        against = ""
        if found.get("retries", 1) == 0:
            against = "retries=0"
        elif found.get("acks", -1) != -1:
            against = f"acks={found['acks']}"
        if against and "enable_idempotence" in found:
            raise ConfigError(f"{against} and enable.idempotence=true exclude each other")
        if against:
            _log.info("no idempotence because of %s", against)
            found["enable_idempotence"] = False
        in_flight = found.get("max_in_flight_requests_per_connection", _IN_FLIGHT_MAX)
        if in_flight > _IN_FLIGHT_MAX:
            raise invalid(
                "max.in.flight.requests.per.connection",
                in_flight,
                f"at most {_IN_FLIGHT_MAX} with enable.idempotence=true",
            )
    if "transactional_id" in found and not found.get("enable_idempotence", True):
        raise ConfigError("transactional.id needs enable.idempotence=true")
    if found.get("transaction_two_phase_commit_enable") and "transaction_timeout_ms" in found:
        raise ConfigError(
            "transaction.timeout.ms and transaction.two.phase.commit.enable=true exclude each other"
        )


def _check_delivery(found: dict[str, Any]) -> None:
    least = found.get("linger_ms", 5) + found.get("request_timeout_ms", 30_000)
    least = min(least, 2**31 - 1)
    if found.get("delivery_timeout_ms", 120_000) < least:
        if "delivery_timeout_ms" in found:
            raise invalid(
                "delivery.timeout.ms",
                found["delivery_timeout_ms"],
                f"must be at least linger.ms + request.timeout.ms = {least}",
            )
        found["delivery_timeout_ms"] = least
