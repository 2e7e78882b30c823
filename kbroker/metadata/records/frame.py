"""The envelopes around records: how bytes of a log say which record they are.

metadata record (KIP-631)   uvarint frame version (1), uvarint record key, uvarint version,
                            the record; the log record has no key of its own
coordinator key             int16 record key, the key's fields (always version 0)
coordinator value           int16 version, the value's fields; null is a tombstone
control record of raft      log key: int16 version (0), int16 control type; log value: the
                            record, whose first field is its version
"""

from __future__ import annotations

import struct
from operator import attrgetter
from typing import Any, TypeVar, cast

from . import access, cluster, raft, topics
from .codec import decode, decode_from, encode, encode_onto
from .schema import Record
from .wire import UUID_BYTES, RecordError, read_uvarint, write_uvarint

FRAME_VERSION = 1
METADATA: dict[int, type[Record]] = {**cluster.METADATA, **topics.METADATA, **access.METADATA}
"""Every metadata record of Kafka 4.3 by its key."""
CONTROL_TYPES: dict[int, type[Record]] = {
    2: raft.LeaderChangeMessage,
    3: raft.SnapshotHeaderRecord,
    4: raft.SnapshotFooterRecord,
    5: raft.KRaftVersionRecord,
    6: raft.VotersRecord,
}
"""Control records of a raft log by control type; 0 and 1 end transactions in a topic's log."""

_CONTROL_KEY = struct.Struct(">hh")
_INT16 = struct.Struct(">h")
_CONTROL_CODES = {cls: code for code, cls in CONTROL_TYPES.items()}
K = TypeVar("K", bound=Record)


_PARTITION_HEAD = struct.Struct(">BBBi16s")  # frame version, key, version, number, topic id
_HEAD_FIELDS = ("partition_id", "topic_id")
_partition_tail = attrgetter(
    *(field.name for field in topics.PartitionRecord.SCHEMA.fields
      if field.name not in _HEAD_FIELDS), "unknown_tags",
)  # fmt: skip


class _Partitions:
    """Encoder of partition records, of which a request writes thousands that differ only in number
    and topic id: what follows these two is encoded again only where it has changed."""

    def __init__(self) -> None:
        self._last: tuple[int, tuple[Any, ...], bytes] = (-1, (), b"")

    def encode(self, record: topics.PartitionRecord, version: int) -> bytes:
        last_version, last_values, tail = self._last
        values = _partition_tail(record)
        if version != last_version or values != last_values:
            data = _encode(record, version)
            # Copies: somebody may change a list of the record in place.
            kept = tuple(value.copy() if isinstance(value, list) else value for value in values)
            self._last = version, kept, data[_PARTITION_HEAD.size :]
            return data
        if len(record.topic_id) != UUID_BYTES:
            return _encode(record, version)
        try:
            return _PARTITION_HEAD.pack(
                FRAME_VERSION, record.SCHEMA.key, version, record.partition_id, record.topic_id
            ) + tail
        except struct.error:
            return _encode(record, version)  # raises the error that says why


_PARTITIONS = _Partitions()


def encode_metadata(record: Record, version: int) -> bytes:
    """A metadata record in its frame."""
    if isinstance(record, topics.PartitionRecord):
        return _PARTITIONS.encode(record, version)
    return _encode(record, version)


def _encode(record: Record, version: int) -> bytes:
    out = bytearray((FRAME_VERSION,))
    write_uvarint(out, record.SCHEMA.key)
    write_uvarint(out, version)
    encode_onto(out, record, version)
    return bytes(out)


def decode_metadata(data: bytes) -> tuple[Record, int]:
    """A metadata record and its version; one that 4.3 does not know is an error."""
    try:
        frame_version, position = read_uvarint(data, 0)
        key, position = read_uvarint(data, position)
        version, position = read_uvarint(data, position)
    except IndexError as error:
        raise RecordError("a metadata record ends within its frame") from error
    if frame_version != FRAME_VERSION:
        raise RecordError(f"metadata record frame version {frame_version}, not {FRAME_VERSION}")
    if key not in METADATA:
        raise RecordError(f"metadata record {key} is none of Kafka 4.3's")
    record, end = decode_from(METADATA[key], version, data, position)
    if end != len(data):
        raise RecordError(f"{len(data) - end} bytes behind metadata record {key}")
    return record, version


def encode_key(key: Record) -> bytes:
    """The key of a coordinator's record."""
    return _INT16.pack(key.SCHEMA.key) + encode(key, 0)


def decode_key(data: bytes, keys: dict[int, type[Record]]) -> Record | None:
    """The key of a coordinator's record, None where `keys` has none of its number."""
    if len(data) < _INT16.size:
        raise RecordError("a coordinator record's key is shorter than its number")
    (number,) = _INT16.unpack_from(data)
    if number not in keys:
        return None
    return decode(keys[number], 0, data[_INT16.size :])


def encode_value(value: Record, version: int) -> bytes:
    """The value of a coordinator's record."""
    return _INT16.pack(version) + encode(value, version)


def decode_value(data: bytes, cls: type[K]) -> K:
    """The value of a coordinator's record whose key said that it is a `cls`."""
    if len(data) < _INT16.size:
        raise RecordError("a coordinator record's value is shorter than its version")
    (version,) = _INT16.unpack_from(data)
    return decode(cls, version, data[_INT16.size :])


def encode_control(record: Record) -> tuple[bytes, bytes]:
    """Log key and log value of a raft control record, in the version that it says itself."""
    version = cast(int, record.version)  # type: ignore[attr-defined]
    return _CONTROL_KEY.pack(0, _CONTROL_CODES[type(record)]), encode(record, version)


def decode_control(key: bytes, value: bytes) -> Record | None:
    """A raft control record, None for a control type that is not of raft."""
    if len(key) < _CONTROL_KEY.size:
        raise RecordError("a control record's key is shorter than its type")
    cls = CONTROL_TYPES.get(_CONTROL_KEY.unpack_from(key)[1])
    if cls is None:
        return None
    if len(value) < _INT16.size:
        raise RecordError("a control record is shorter than its version")
    (version,) = _INT16.unpack_from(value)
    return decode(cls, version, value)
