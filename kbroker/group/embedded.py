"""What consumers say inside the classic protocol: subscriptions and assignments.

JoinGroup and SyncGroup carry them as bytes that only clients of the protocol type "consumer"
understand: int16 version, then the message of that version (KIP-429, KIP-792, KIP-881). A version
that is newer than those known is read as the newest known.
"""

from __future__ import annotations

import functools
import importlib
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from kbroker.protocol.decode import Cursor, struct_reader
from kbroker.protocol.encode import struct_writer

_VERSION: Final = struct.Struct(">h")
_NEWEST: Final = 3


class EmbeddedError(ValueError):
    """Bytes that are no message of this kind."""


class Subscription(NamedTuple):
    """What a member subscribes to, and what it owns by topic (version 1 and later)."""

    topics: Sequence[str]
    owned: Sequence[tuple[str, Sequence[int]]]
    rack_id: str | None


class EmbeddedAssignment(NamedTuple):
    """Partitions by topic, and what a custom assignor added to them."""

    partitions: Mapping[str, Sequence[int]]
    user_data: bytes | None


def version_of(data: bytes) -> int:
    """The version that a message says it has."""
    if len(data) < _VERSION.size:
        raise EmbeddedError("no version")
    version: int = _VERSION.unpack_from(data)[0]
    if version < 0:
        raise EmbeddedError(f"version {version}")
    return version


def read_subscription(data: bytes) -> Subscription:
    """The subscription in a member's protocol metadata."""
    read = _read("consumer_protocol_subscription", data)
    owned = [(one.topic, one.partitions) for one in getattr(read, "owned_partitions", ())]
    return Subscription(read.topics, owned, getattr(read, "rack_id", None) or None)


def read_assignment(data: bytes) -> EmbeddedAssignment:
    """The assignment that a member was given."""
    read = _read("consumer_protocol_assignment", data)
    partitions = {one.topic: one.partitions for one in read.assigned_partitions}
    return EmbeddedAssignment(partitions, read.user_data)


def write_assignment(partitions: Mapping[str, Collection[int]], version: int) -> bytes:
    """An assignment for a member whose subscription had that version."""
    version = min(version, _NEWEST)
    out = bytearray(_VERSION.pack(version))
    topics = [{"topic": topic, "partitions": sorted(mine)} for topic, mine in partitions.items()]
    schema = _schema("consumer_protocol_assignment", version)
    struct_writer(schema)(out, {"assigned_partitions": topics, "user_data": None})
    return bytes(out)


def _read(name: str, data: bytes) -> Any:
    """Not by kio's reader, which believes what an array says of its length: see decode.py."""
    schema = _schema(name, min(version_of(data), _NEWEST))
    try:
        return struct_reader(schema)(Cursor(data[_VERSION.size :]))
    except Exception as error:
        raise EmbeddedError(f"{name}: {error}") from error


@functools.cache
def _schema(name: str, version: int) -> Any:
    module = importlib.import_module(f"kio.schema.{name}.v{version}.data")
    return getattr(module, "".join(part.capitalize() for part in name.split("_")))
