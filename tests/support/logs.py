"""Partition logs for tests: settings, batches, and a log on a folder."""

from __future__ import annotations

from pathlib import Path

from kbroker.ext import records
from kbroker.ext.log import Log

TOPIC_ID = bytes(range(16))
FOREVER = 2**62

#: Kafka's defaults, but for what would make a test wait.
CONFIG = {
    "segment_bytes": 1 << 30,
    "segment_ms": 7 * 24 * 3600 * 1000,
    "segment_jitter_ms": 0,
    "segment_age_ms": -1,
    "index_interval_bytes": 4096,
    "segment_index_bytes": 10 << 20,
    "retention_ms": -1,
    "retention_bytes": -1,
    "max_message_bytes": 1048588,
    "timestamp_before_max_ms": FOREVER,
    "timestamp_after_max_ms": FOREVER,
    "flush_messages": FOREVER,
    "flush_ms": FOREVER,
    "file_delete_delay_ms": 60_000,
    "producer_id_expiration_ms": FOREVER,
    "delete_retention_ms": 86_400_000,
    "min_compaction_lag_ms": 0,
    "max_compaction_lag_ms": 2**63 - 1,
    "min_cleanable_ppb": 500_000_000,
    "timestamp_type": 0,
    "compression_type": -1,
    "compression_level": 0,
    "cleanup_delete": 1,
    "cleanup_compact": 0,
    "min_insync_replicas": 1,
    "preallocate": 0,
}


def open_log(
    folder: Path,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start: int = 0,
    durable: bool = False,
    **settings: int,
) -> Log:
    """The log in a folder, made when it is not there."""
    return Log(
        str(folder),
        "topic",
        TOPIC_ID,
        0,
        CONFIG | settings,
        log_start_offset=log_start,
        recovery_point=recovery_point,
        clean=clean,
        durable=durable,
    )


def batch(count: int = 1, size: int = 20, timestamp: int = 1000, **header: object) -> bytes:
    """A batch of `count` records with values of `size` bytes, a millisecond apart."""
    rows = [(timestamp + i, None, bytes([97 + i % 26]) * size) for i in range(count)]
    return records.build(rows, **header)  # type: ignore[arg-type]


def marker(
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    timestamp: int = 1000,
    coordinator_epoch: int = 0,
) -> bytes:
    """The control batch that ends a transaction."""
    key = b"\0\0" + (b"\0\1" if commit else b"\0\0")
    value = b"\0\0" + coordinator_epoch.to_bytes(4, "big")
    return records.build(
        [(timestamp, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def read_all(log: Log, offset: int | None = None, max_bytes: int = 1 << 20) -> bytes:
    """Every byte from `offset` (log start) to the high watermark, as a client would collect it."""
    at = log.log_start_offset if offset is None else offset
    found = bytearray()
    while piece := log.read(at, max_bytes):
        found += piece
        last = records.batches(piece)[-1]
        at = last.base_offset + last.last_offset_delta + 1
    return bytes(found)
