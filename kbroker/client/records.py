"""Records and batches as the client sees them; the bytes are kbroker.ext's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from kbroker.client.errors import CorruptDataError
from kbroker.ext import records as ext

__all__ = [
    "CODECS",
    "FetchedBatch",
    "FetchedRecord",
    "Headers",
    "OutgoingRecord",
    "read_batches",
    "record_size",
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Headers = Iterable[tuple[str, bytes | None]]

# Length, attributes, deltas, key and value lengths, header count, at their usual sizes.
_RECORD_OVERHEAD_BYTES = 12


class OutgoingRecord(NamedTuple):
    """A record on its way; timestamp in ms."""

    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class FetchedRecord:
    """A record that was read, with where it was."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    log_append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True)
class FetchedBatch:
    """One batch of a fetch, at header.position of data; its records are decoded when asked for."""

    data: bytes
    header: ext.Batch

    @property
    def next_offset(self) -> int:
        """The offset behind the batch, also where compaction took its last records."""
        return self.header.base_offset + self.header.last_offset_delta + 1

    def records(self, topic: str, partition: int) -> Iterator[FetchedRecord]:
        """The records in order; a control batch has none for a reader."""
        if self.header.control:
            return
        try:
            found = ext.records(self.data, self.header.position)
        except ext.BatchError as error:
            at = f"{topic}-{partition} at offset {self.header.base_offset}"
            raise CorruptDataError(f"{at}: {error}") from error
        late = self.header.log_append_time
        for offset, timestamp_ms, key, value, headers in found:
            yield FetchedRecord(topic, partition, offset, timestamp_ms, late, key, value, headers)


def read_batches(data: bytes) -> list[FetchedBatch]:
    """The whole batches of a fetch's bytes, checksums checked; a broker may cut the last."""
    try:
        return [FetchedBatch(data, header) for header in ext.batches(data)]
    except ext.BatchError as error:
        raise CorruptDataError(f"a fetched batch is damaged: {error}") from error


def record_size(record: OutgoingRecord) -> int:
    """About how many bytes a record takes before compression."""
    size = _RECORD_OVERHEAD_BYTES + len(record.key or b"") + len(record.value or b"")
    return size + sum(len(name) + len(value or b"") + 2 for name, value in record.headers)
