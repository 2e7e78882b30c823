"""Committed offsets of a shard: commit, fetch, delete, and what of them a record changes.

Errors and their order are Apache Kafka's. Topics and partitions were looked up by the handlers;
here a topic is a name with the id that holds now.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, cast

from kbroker.errors import ClientError, ErrorCode
from kbroker.group.commits import Commit, CommitBatch, TxnCommit, build_batch
from kbroker.group.committed import Committed, CommittedOffsets, pack, unpack
from kbroker.group.expiry import chain, expired, orphans
from kbroker.group.group import CommitCheck
from kbroker.group.outcome import NOTHING, CoordinatorRecord, Now, Outcome, Reply
from kbroker.group.pending import Key, PendingOffsets
from kbroker.group.shard import Shard
from kbroker.group.simple import SimpleGroup
from kbroker.metadata.records.classic_group import (
    LegacyOffsetCommitKey,
    LegacyOffsetCommitValue,
    OffsetCommitKey,
    OffsetCommitValue,
)
from kbroker.operations import run_to_end

_FIRST_WITH_GROUP_NOT_FOUND: Final = 9
_INVALID: Final = {"committed_offset": -1, "committed_leader_epoch": -1, "metadata": ""}
_EXPIRY_TIMER: Final = "offset expiry"
_DROP_TIMER: Final = "offsets of deleted topics"
_DROP_AGAIN_MS: Final = 10_000


class Fetch(NamedTuple):
    """OffsetFetch of one group; `topics` are (name, topic id, partitions), None for all."""

    group_id: str
    topics: Sequence[tuple[str, bytes, Sequence[int]]] | None
    require_stable: bool = False
    member_id: str | None = None
    member_epoch: int = -1


class Offsets:
    """The room. Not thread-safe: the control thread's."""

    def __init__(self, shard: Shard) -> None:
        self._shard = shard
        self.committed = CommittedOffsets()
        self.pending = PendingOffsets()
        shard.replays(
            {
                OffsetCommitKey: self._replay,
                LegacyOffsetCommitKey: self._replay_legacy,
            }
        )
        shard.when_loaded(self._loaded)

    # ---- requests

    def commit(self, request: Commit, reply: Reply, now: Now) -> Outcome:
        """OffsetCommit. Raises ClientError where the request fails as a whole."""
        return self._store(request, self._check_member(request, now), now)

    def commit_in_transaction(self, request: TxnCommit, reply: Reply, now: Now) -> Outcome:
        """TxnOffsetCommit: pending until the transaction ends. Raises ClientError where the request
        fails as a whole; a member that is behind its group is told so by the generation."""
        try:
            check = self._check_txn_member(request)
            outcome = self._store(request, check, now)
        except ClientError as error:
            if error.code == ErrorCode.STALE_MEMBER_EPOCH:
                raise ClientError(ErrorCode.ILLEGAL_GENERATION) from None
            raise
        return outcome._replace(producer=request.producer)

    def _store(
        self, request: Commit | TxnCommit, check: CommitCheck | None, now: Now
    ) -> Outcome:
        batch = request.batch
        if batch is None:
            limit = self._shard.settings.offset_metadata_max_bytes
            batch = run_to_end(build_batch(request, now.wall_ms, limit, None))
        if check is not None:
            for topic, topic_id, partitions in batch.offsets:
                for partition in partitions:
                    check(topic, topic_id, partition)
        return Outcome(batch.records, {"topics": batch.results}, batch=batch)

    def _check_txn_member(self, request: TxnCommit) -> CommitCheck | None:
        group = self._shard.groups.get(request.group_id)
        if group is None:
            if request.generation < 0:
                return None
            raise ClientError(ErrorCode.ILLEGAL_GENERATION)
        return group.validate_offset_commit(
            request.member_id,
            request.instance_id,
            request.generation,
            transactional=True,
            version=request.version,
        )

    def _check_member(self, request: Commit, now: Now) -> CommitCheck | None:
        group = self._shard.groups.get(request.group_id)
        if group is None:
            if request.generation < 0:
                return None  # a simple group, which its first record makes
            if request.version >= _FIRST_WITH_GROUP_NOT_FOUND:
                raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND)
            raise ClientError(ErrorCode.ILLEGAL_GENERATION)
        check = group.validate_offset_commit(
            request.member_id,
            request.instance_id,
            request.generation,
            transactional=False,
            version=request.version,
        )
        group.on_offset_commit(request.member_id, now)
        return check

    def fetch(self, request: Fetch, reply: Reply, now: Now) -> Outcome:
        """OffsetFetch of one group. Raises ClientError where it fails as a whole."""
        group_id, topics = request.group_id, request.topics
        known = True
        try:
            group = self._shard.groups.get(group_id)
            if group is None:
                raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND)
            group.validate_offset_fetch(request.member_id, request.member_epoch)
        except ClientError as error:
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            known = False
        committed = self.committed.topics(group_id) if known else {}
        if topics is None:
            nothing = bytes(16)
            topics = [(name, nothing, list(found)) for name, found in committed.items()]
        stable = request.require_stable and self.pending.has_group(group_id)
        answers = []
        for name, topic_id, indexes in topics:
            found = committed.get(name, {})
            results = [
                self._fetched(index, found.get(index), topic_id)
                if not (stable and self.pending.has(group_id, name, index))
                else {**_INVALID, **_result(index, ErrorCode.UNSTABLE_OFFSET_COMMIT)}
                for index in indexes
            ]
            answers.append(_topic(name, topic_id, results))
        return Outcome(response={"group_id": group_id, "topics": answers})

    @staticmethod
    def _fetched(index: int, data: bytes | None, topic_id: bytes) -> dict[str, Any]:
        """An offset, none where it was committed for an earlier topic of this name."""
        found = None if data is None else unpack(data)
        if found is None or (
            any(found.topic_id) and any(topic_id) and found.topic_id != topic_id
        ):
            return {**_INVALID, "partition_index": index}
        return {
            "partition_index": index,
            "committed_offset": found.offset,
            "committed_leader_epoch": found.leader_epoch,
            "metadata": found.metadata,
        }

    def delete(
        self, group_id: str, topics: Iterable[tuple[str, Iterable[int]]]
    ) -> Outcome:
        """OffsetDelete. Raises ClientError where it fails as a whole."""
        group = self._shard.groups.get(group_id)
        if group is None:
            raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.validate_offset_delete()
        records: list[CoordinatorRecord] = []
        answers = []
        for name, indexes in topics:
            subscribed = group.subscribed_to(name)
            code = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            results = []
            for index in indexes:
                results.append(_result(index, code))
                if not subscribed and self._has(group_id, name, index):
                    records.append(tombstone(group_id, name, index))
            answers.append({"name": name, "partitions": results})
        return Outcome(records, {"topics": answers})

    def delete_group(self, group_id: str) -> Outcome:
        """A part of DeleteGroups: the group with all that it committed. Raises ClientError."""
        group = self._shard.groups.get(group_id)
        if group is None:
            raise ClientError(ErrorCode.GROUP_ID_NOT_FOUND, f"Group {group_id} not found.")
        group.validate_delete()
        records = [tombstone(*key) for key in self._keys(group_id)]
        records += group.tombstones()
        return Outcome(records, {"group_id": group_id, "error_code": ErrorCode.NONE})

    def _has(self, group_id: str, topic: str, partition: int) -> bool:
        return self.committed.has(group_id, topic, partition) or self.pending.has(
            group_id, topic, partition
        )

    def _keys(self, group_id: str) -> Iterable[tuple[str, str, int]]:
        """What is committed or pending for a group, each key once."""
        keys = {
            (group_id, topic, partition): None
            for topic, partitions in self.committed.topics(group_id).items()
            for partition in partitions
        }
        keys.update(dict.fromkeys(self.pending.of_group(group_id)))
        return keys

    # ---- what happens by itself

    def _loaded(self, now: Now) -> Outcome:
        """Look for what has expired from now on; drop offsets of topics that are gone by now."""
        self._schedule(now)
        return self._drop_orphans(now)

    def _drop_orphans(self, now: Now) -> Outcome:
        return self._drop(orphans(self._shard, self.committed, self.pending), now)

    def _drop(self, keys: Iterable[Key], now: Now) -> Outcome:
        """Drop offsets of topics that are gone; what the disk does not take is tried again."""
        records = [tombstone(*key) for key in keys]
        again_ms = now.monotonic_ms + _DROP_AGAIN_MS
        timers = self._shard.timers
        failed = partial(timers.schedule, _DROP_TIMER, again_ms, self._drop_orphans)
        return chain(records, failed) if records else NOTHING

    def _schedule(self, now: Now) -> None:
        interval = self._shard.settings.offsets_retention_check_interval_ms
        self._shard.timers.schedule(_EXPIRY_TIMER, now.monotonic_ms + interval, self._expire)

    def _expire(self, now: Now, groups: list[str] | None = None) -> Outcome:
        """Drop what has expired, some thousands at a time, so that requests get their turn."""
        left = list(self._shard.groups) if groups is None else groups
        records: list[CoordinatorRecord] = []
        expired(self._shard, self.committed, self.pending, left, records, now.wall_ms)
        if left:
            self._shard.timers.schedule(
                _EXPIRY_TIMER, now.monotonic_ms + 1, lambda later: self._expire(later, left)
            )
        else:
            self._schedule(now)
        return chain(records)

    def forget_topics(self, names: Collection[str], now: Now) -> Outcome:
        """Topics were deleted."""
        gone = frozenset(names)
        keys = {
            (group, name, partition): None
            for group in self.committed.groups()
            for name in self.committed.topics(group).keys() & gone
            for partition in self.committed.topics(group)[name]
        }
        keys.update(dict.fromkeys(key for key in self.pending if key[1] in gone))
        return self._drop(keys, now)

    # ---- the fold

    def put(self, group: str, topic: str, partition: int, data: bytes) -> None:
        """A commit takes effect; a group that nobody has heard of is a simple one."""
        self.committed.put(group, topic, partition, data)
        if len(self.pending):
            self.pending.overrule((group, topic, partition))
        self._known(group)

    def take(self, batch: CommitBatch, producer_id: int | None) -> None:
        """A commit takes effect, or is pending with the transaction of a producer: what the replay
        of its records would do, by topic."""
        group = batch.group_id
        for topic, _, partitions in batch.offsets:
            if producer_id is not None:
                for partition, data in partitions.items():
                    self.pending.put(producer_id, (group, topic, partition), data)
            elif partitions:
                self.committed.put_all(group, topic, partitions)
                if len(self.pending):
                    for partition in partitions:
                        self.pending.overrule((group, topic, partition))
        self._known(group)

    def _known(self, group: str) -> None:
        if group not in self._shard.groups:
            self._shard.groups[group] = SimpleGroup(group)

    def _replay(self, record: CoordinatorRecord) -> None:
        key = cast(OffsetCommitKey, record.key)
        if record.value is None:
            self.committed.remove(key.group, key.topic, key.partition)
            self.pending.drop((key.group, key.topic, key.partition))
        else:
            value = cast(OffsetCommitValue, record.value)
            self.put(key.group, key.topic, key.partition, pack(_committed(value)))

    def _replay_legacy(self, record: CoordinatorRecord) -> None:
        key = cast(LegacyOffsetCommitKey, record.key)
        value = cast("LegacyOffsetCommitValue | None", record.value)
        newer = None
        if value is not None:
            newer = OffsetCommitValue(value.offset, -1, value.metadata, value.commit_timestamp)
        self._replay(
            CoordinatorRecord(OffsetCommitKey(key.group, key.topic, key.partition), newer)
        )

    def replay_pending(self, producer_id: int, record: CoordinatorRecord) -> None:
        """A record that a transaction appended."""
        if not isinstance(record.key, OffsetCommitKey) or record.value is None:
            self._shard.replay(record)
            return
        key = record.key
        value = cast(OffsetCommitValue, record.value)
        packed = pack(_committed(value))
        self.put_pending(producer_id, (key.group, key.topic, key.partition), packed)

    def put_pending(self, producer_id: int, key: Key, data: bytes | None) -> None:
        """A commit of a transaction that is open; None where a later one overrules it."""
        self.pending.put(producer_id, key, data)
        self._known(key[0])

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction's marker: what it committed takes effect, or goes."""
        if not committed:
            self.pending.abort(producer_id)
            return
        for key, data in self.pending.end(producer_id):
            self.committed.put(*key, data)
            self._known(key[0])


def tombstone(group: str, topic: str, partition: int) -> CoordinatorRecord:
    """The record that deletes a committed offset."""
    return CoordinatorRecord(OffsetCommitKey(group, topic, partition))


def _committed(value: OffsetCommitValue) -> Committed:
    return Committed(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
    )


def _result(index: int, code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": index, "error_code": code}


def _topic(name: str, topic_id: bytes, partitions: list[dict[str, Any]]) -> dict[str, Any]:
    return {"name": name, "topic_id": topic_id, "partitions": partitions}
