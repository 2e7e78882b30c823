"""Offset commits: what a request commits, and the batch that is built of it.

A commit takes effect in one step of its group's partition, all or nothing. A request may commit
thousands of offsets; so its records, their bytes and its results are built before that step, in
slices. The step itself looks at the group, appends the batch and takes the offsets in by topic.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.committed import Committed, Partitions, pack
from kbroker.group.outcome import CoordinatorRecord
from kbroker.group.records import Records
from kbroker.metadata.records.classic_group import OffsetCommitKey, OffsetCommitValue
from kbroker.metadata.records.wire import RecordError
from kbroker.operations import Steps

NO_RETENTION: Final = -1
_VERSION: Final = 4
_VERSION_WITH_EXPIRY: Final = 1


class PartitionCommit(NamedTuple):
    """What is committed for a partition; None is no metadata."""

    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = ""


class TopicCommit(NamedTuple):
    """A topic that is there, with partitions that are there."""

    name: str
    topic_id: bytes
    partitions: Sequence[PartitionCommit]


class CommitBatch:
    """The records of a commit with their bytes, its offsets as memory holds them, its results."""

    __slots__ = ("error", "group_id", "offsets", "pairs", "records", "results")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.records: list[CoordinatorRecord] = []
        self.pairs: list[tuple[int, bytes, bytes | None]] = []
        """Timestamp, key and value of each record."""
        self.offsets: list[tuple[str, bytes, Partitions]] = []
        """Topic, its id, and the last offset of each of its partitions, packed."""
        self.results: list[dict[str, Any]] = []
        self.error: Exception | None = None
        """Why there is no such batch: then it ends with the first record too many."""


class Commit(NamedTuple):
    """OffsetCommit: `generation` is the member epoch in the new protocol."""

    group_id: str
    topics: Sequence[TopicCommit]
    version: int
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    retention_ms: int = NO_RETENTION
    batch: CommitBatch | None = None


class TxnCommit(NamedTuple):
    """TxnOffsetCommit: `producer` is (id, epoch), `generation` as in Commit."""

    group_id: str
    topics: Sequence[TopicCommit]
    version: int
    producer: tuple[int, int]
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    batch: CommitBatch | None = None


def build_batch(
    commit: Commit | TxnCommit, now_ms: int, metadata_max: int, bytes_max: int | None
) -> Steps[CommitBatch]:
    """Build the batch of a commit. `metadata_max`: of a partition's metadata in UTF-16 units;
    `bytes_max`: of the batch where it is not compressed."""
    retention_ms = commit.retention_ms if isinstance(commit, Commit) else NO_RETENTION
    expires = retention_ms != NO_RETENTION
    expire_ms = _as_int64(now_ms + retention_ms) if expires else -1
    version = _VERSION_WITH_EXPIRY if expires else _VERSION
    batch = CommitBatch(commit.group_id)
    size = 0
    for topic in commit.topics:
        results = []
        offsets: Partitions = {}
        for index, offset, epoch, metadata in topic.partitions:
            yield
            if metadata is not None and _too_long(metadata, metadata_max):
                results.append(_result(index, ErrorCode.OFFSET_METADATA_TOO_LARGE))
                continue
            results.append(_result(index, ErrorCode.NONE))
            text = metadata or ""
            record = CoordinatorRecord(
                OffsetCommitKey(commit.group_id, topic.name, index),
                OffsetCommitValue(offset, epoch, text, now_ms, expire_ms, topic.topic_id),
                version,
            )
            batch.records.append(record)
            try:
                key, value = Records.encode(record)
                size += len(key) + len(value or b"")
                if bytes_max is not None and size > bytes_max:
                    raise ClientError(ErrorCode.MESSAGE_TOO_LARGE)
            except (ClientError, RecordError, ValueError) as error:
                batch.error = error
                return batch
            batch.pairs.append((now_ms, key, value))
            packed = Committed(offset, epoch, text, now_ms, expire_ms, topic.topic_id)
            offsets[index] = pack(packed)
        batch.offsets.append((topic.name, topic.topic_id, offsets))
        batch.results.append(
            {"name": topic.name, "topic_id": topic.topic_id, "partitions": results}
        )
    return batch


def _as_int64(moment_ms: int) -> int:
    """A moment beyond 2**63 is long past, as in Apache Kafka."""
    return (moment_ms + (1 << 63)) % (1 << 64) - (1 << 63)


def _too_long(metadata: str, limit: int) -> bool:
    """Java counts UTF-16 units, of which a character has at most two."""
    if len(metadata) * 2 <= limit:
        return False
    return sum(2 if ord(char) > 0xFFFF else 1 for char in metadata) > limit


def _result(index: int, code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": index, "error_code": code}
