"""Records of `__consumer_offsets` from and to the bytes of their keys and values.

A key begins with an int16 that says which record it is, a value with an int16 that is its version
(kbroker.metadata.records.frame). Kinds that this broker does not coordinate (share and streams
groups, and whatever a later Kafka writes) are passed over when a partition is loaded, and so is
what does not decode: a damaged record costs that record, never the start.
"""

from __future__ import annotations

import logging
import struct
from typing import Final

from kbroker.ext.offsets_build import commit_key, commit_value
from kbroker.group.outcome import CoordinatorRecord
from kbroker.metadata.records import classic_group, consumer_group
from kbroker.metadata.records.classic_group import OffsetCommitKey, OffsetCommitValue
from kbroker.metadata.records.frame import decode_key, decode_value, encode_key, encode_value
from kbroker.metadata.records.schema import Record
from kbroker.metadata.records.wire import RecordError

_LOG: Final = logging.getLogger("kbroker.group")

KEYS: Final[dict[int, type[Record]]] = {**classic_group.KEYS, **consumer_group.KEYS}
VALUES: Final[dict[int, type[Record]]] = {**classic_group.VALUES, **consumer_group.VALUES}

_INT16: Final = struct.Struct(">h")
_COMPLAINTS_MAX: Final = 20


def _encode_commit(
    key: OffsetCommitKey, value: Record | None, version: int
) -> tuple[bytes, bytes | None]:
    """By hand: what is written most often."""
    encoded = commit_key(key.group, key.topic, key.partition)
    if value is None:
        return encoded, None
    assert isinstance(value, OffsetCommitValue)
    return encoded, commit_value(
        value.offset,
        value.leader_epoch,
        value.metadata,
        value.commit_timestamp,
        value.expire_timestamp,
        value.topic_id,
        version,
    )


class Records:
    """Writes and reads the records of one partition; tells what it passes over, within bounds."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._unknown: set[int] = set()
        self.damaged = 0

    @staticmethod
    def encode(record: CoordinatorRecord) -> tuple[bytes, bytes | None]:
        """Key and value as the log has them; a tombstone has no value."""
        key, value = record.key, record.value
        if isinstance(key, OffsetCommitKey):
            return _encode_commit(key, value, record.version)
        return encode_key(key), None if value is None else encode_value(value, record.version)

    def decode(self, offset: int, key: bytes | None, value: bytes | None) -> (
        CoordinatorRecord | None
    ):  # fmt: skip
        """The record, None for one that is passed over."""
        try:
            if key is None:
                raise RecordError("it has no key")
            found = decode_key(key, KEYS)
            if found is None:
                self._tell_unknown(_INT16.unpack_from(key)[0])
                return None
            if value is None:
                return CoordinatorRecord(found)
            version = _INT16.unpack_from(value)[0] if len(value) >= _INT16.size else -1
            decoded = decode_value(value, VALUES[found.SCHEMA.key])
        except (RecordError, ValueError, struct.error) as error:
            self.tell_damaged(offset, error)
            return None
        return CoordinatorRecord(found, decoded, version)

    def tell_damaged(self, offset: int, error: Exception | str) -> None:
        """A record is passed over because it cannot be read."""
        self.damaged += 1
        if self.damaged <= _COMPLAINTS_MAX:
            _LOG.warning(
                "passing over a damaged record of __consumer_offsets-%d at offset %d: %s",
                self._partition, offset, error,
            )  # fmt: skip

    def _tell_unknown(self, kind: int) -> None:
        if kind not in self._unknown:
            self._unknown.add(kind)
            _LOG.info(
                "passing over records of kind %d in __consumer_offsets-%d", kind, self._partition
            )
