"""Which committed offsets are to go: expired ones, and those of topics that are gone.

Kafka's rule: an offset of a topic that a member consumes stays; of the others those go that the
group's condition (by its kind and state) calls old, unless a transaction has one pending. A group
without members and without offsets goes with its last one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kbroker.errors import ErrorCode
from kbroker.group.committed import NO_TOPIC_ID, CommittedOffsets, topic_id_of, unpack
from kbroker.group.group import OffsetExpiry
from kbroker.group.outcome import CoordinatorRecord, Outcome
from kbroker.group.pending import Key, PendingOffsets
from kbroker.group.shard import Shard
from kbroker.metadata.records.classic_group import OffsetCommitKey

_MS_PER_MINUTE: Final = 60_000
_OFFSETS_AT_A_TIME: Final = 10_000
_RECORDS_PER_BATCH: Final = 1_000


def chain(
    records: Sequence[CoordinatorRecord], failed: Callable[[], None] | None = None, at: int = 0
) -> Outcome:
    """Records that need not go together, in batches that every topic setting allows. `failed` is
    called where one could not be appended; those behind it are not tried. From `at` on."""
    until = at + _RECORDS_PER_BATCH

    def then(error: ErrorCode) -> Outcome | None:
        if error != ErrorCode.NONE:
            if failed is not None:
                failed()
            return None
        return chain(records, failed, until) if until < len(records) else None

    return Outcome(records[at:until], then=then)


def expired(  # noqa: PLR0917
    shard: Shard,
    committed: CommittedOffsets,
    pending: PendingOffsets,
    groups: list[str],
    out: list[CoordinatorRecord],
    now_ms: int,
) -> None:
    """Take groups off the end of `groups`, and put what is to go of them into `out`; some
    thousands of offsets at a time."""
    retention_ms = shard.settings.offsets_retention_minutes * _MS_PER_MINUTE
    looked_at = 0
    while groups and looked_at < _OFFSETS_AT_A_TIME:
        group_id = groups.pop()
        group = shard.groups.get(group_id)
        if group is None:
            continue
        topics = committed.topics(group_id)
        looked_at += 1 + sum(map(len, topics.values()))
        condition = group.offset_expiry()
        if condition is None and topics:
            continue
        kept = pending.has_group(group_id)
        for topic, partitions in topics.items():
            assert condition is not None
            for partition, data in partitions.items():
                if (
                    group.subscribed_to(topic)
                    or not _is_old(condition, data, now_ms, retention_ms)
                    or pending.has(group_id, topic, partition)
                ):
                    kept = True
                else:
                    key = OffsetCommitKey(group_id, topic, partition)
                    out.append(CoordinatorRecord(key))
        if not kept and group.is_empty():
            out += group.tombstones()


def _is_old(condition: OffsetExpiry, data: bytes, now_ms: int, retention_ms: int) -> bool:
    found = unpack(data)
    return condition.is_expired(found.commit_ms, found.expire_ms, now_ms, retention_ms)


def orphans(shard: Shard, committed: CommittedOffsets, pending: PendingOffsets) -> list[Key]:
    """Keys of topics that are not there, or that are others of the same name."""
    ids: dict[str, bytes | None] = {}

    def id_of(topic: str) -> bytes | None:
        if topic not in ids:
            info = shard.topics.by_name(topic)
            ids[topic] = None if info is None else info.topic_id
        return ids[topic]

    found: dict[Key, None] = {}
    for group in committed.groups():
        for topic, partitions in committed.topics(group).items():
            topic_id = id_of(topic)
            for partition, data in partitions.items():
                stored = topic_id_of(data)
                if stored != topic_id and (topic_id is None or stored != NO_TOPIC_ID):
                    found[group, topic, partition] = None
    found.update(dict.fromkeys(key for key in pending if id_of(key[1]) is None))
    return list(found)
