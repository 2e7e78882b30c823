"""The fold of `__consumer_offsets`, slow and obvious, over the broker's own record decoders."""

from __future__ import annotations

import struct

from kbroker.ext import records
from kbroker.metadata.records.classic_group import KEYS, VALUES
from kbroker.metadata.records.codec import RecordError
from kbroker.metadata.records.frame import decode_key, decode_value
from kbroker.metadata.records.schema import NO_UUID


class Fold:
    """Commits by (group, topic, partition), each (fields of its value, record offset)."""

    def __init__(self) -> None:
        self.commits: dict = {}
        self.pendings: dict = {}
        self.others: list = []
        self.problems: list = []

    def feed(self, data: bytes) -> None:
        """Whole batches."""
        for batch in records.batches(data):
            for record in records.records(data, batch.position):
                if batch.control:
                    self._marker(batch, record)
                else:
                    self._record(batch, record)

    def packed(self) -> list:
        """As OffsetsFold.packed, in the order of keys."""
        return [(*key, _packed(commit)) for key, commit in sorted(self.commits.items())]

    def pending(self) -> list:
        """As OffsetsFold.pending."""
        found = sorted(
            (commit[-1], producer, key, commit)
            for producer, commits in self.pendings.items()
            for key, commit in commits.items()
        )
        return [
            (producer, self.commits.get(key, (-1,))[-1] < offset, *key, _packed(commit))
            for offset, producer, key, commit in found
        ]

    def _record(self, batch, record) -> None:
        if record.key is None or len(record.key) < 2:
            self.problems.append(record.offset)
            return
        (number,) = struct.unpack_from(">h", record.key)
        if number not in (0, 1):
            self.others.append((record.offset, record.key, record.value))
            return
        try:
            name = decode_key(record.key, KEYS)
            value = None if record.value is None else decode_value(record.value, VALUES[number])
        except RecordError:
            self.problems.append(record.offset)
            return
        key = (name.group, name.topic, name.partition)
        if value is None:
            self.commits.pop(key, None)
            for commits in self.pendings.values():
                commits.pop(key, None)
            return
        commit = _commit(value, record.offset)
        if batch.producer_id == -1:
            self.commits[key] = commit
        else:
            self.pendings.setdefault(batch.producer_id, {})[key] = commit

    def _marker(self, batch, record) -> None:
        if record.key is None or len(record.key) < 4:
            self.problems.append(record.offset)
            return
        kind = struct.unpack_from(">hh", record.key)[1]
        if kind not in (0, 1):
            return
        for key, commit in self.pendings.pop(batch.producer_id, {}).items():
            held = self.commits.get(key)
            if kind == 1 and (held is None or commit[-1] > held[-1]):
                self.commits[key] = commit


def _commit(value, record_offset: int) -> tuple:
    topic_id = getattr(value, "topic_id", NO_UUID)
    return (
        value.offset,
        getattr(value, "leader_epoch", -1),
        value.metadata,
        value.commit_timestamp,
        getattr(value, "expire_timestamp", -1),
        None if topic_id == NO_UUID else topic_id,
        record_offset,
    )


def _packed(commit: tuple) -> bytes:
    offset, epoch, metadata, commit_ms, expire_ms, topic_id, _ = commit
    head = struct.pack(">qiqq", offset, epoch, commit_ms, expire_ms)
    return head + (topic_id or NO_UUID) + metadata.encode()
