"""Requests of consumer groups as bytes, and what is read of their answers.

Versions without tagged fields where there are such, so that one struct packs a request; the
ConsumerGroupHeartbeat has flexible ones only. A frame holds a correlation id of zero: a member has
one request in flight.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from perf.admin import CLIENT_ID, text

FIND_COORDINATOR, FIND_VERSION = 10, 2
METADATA, METADATA_VERSION = 3, 10
JOIN, JOIN_VERSION = 11, 5
SYNC, SYNC_VERSION = 14, 3
HEARTBEAT, HEARTBEAT_VERSION = 12, 3
COMMIT, COMMIT_VERSION = 8, 7
CONSUMER_HEARTBEAT, CONSUMER_HEARTBEAT_VERSION = 68, 1

NONE = 0
MEMBER_ID_REQUIRED = 79
REBALANCE_IN_PROGRESS = 27
#: The coordinator is being found, loaded or moved, or its topic is not there yet.
NOT_YET = frozenset({3, 5, 14, 15, 16})

PROTOCOL = "range"


def block(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def frame(key: int, version: int, body: bytes, tagged: bytes = b"") -> bytes:
    payload = struct.pack(">hhi", key, version, 0) + CLIENT_ID + tagged + body
    return struct.pack(">i", len(payload)) + payload


# ---- classic


def join(group: str, member_id: str, topic: str, session_ms: int, rebalance_ms: int) -> bytes:
    subscription = struct.pack(">hi", 0, 1) + text(topic) + struct.pack(">i", -1)
    body = text(group) + struct.pack(">ii", session_ms, rebalance_ms) + text(member_id)
    body += struct.pack(">h", -1) + text("consumer") + struct.pack(">i", 1)
    return frame(JOIN, JOIN_VERSION, body + text(PROTOCOL) + block(subscription))


def sync(group: str, generation: int, member_id: str, assigned: Mapping[str, bytes]) -> bytes:
    body = text(group) + struct.pack(">i", generation) + text(member_id) + struct.pack(">h", -1)
    body += struct.pack(">i", len(assigned))
    for name, assignment in assigned.items():
        body += text(name) + block(assignment)
    return frame(SYNC, SYNC_VERSION, body)


def assignment(topic: str, partitions: Sequence[int]) -> bytes:
    body = struct.pack(">hi", 0, 1) + text(topic)
    body += struct.pack(f">i{len(partitions)}i", len(partitions), *partitions)
    return body + struct.pack(">i", -1)


def heartbeat(group: str, generation: int, member_id: str) -> bytes:
    body = text(group) + struct.pack(">i", generation) + text(member_id) + struct.pack(">h", -1)
    return frame(HEARTBEAT, HEARTBEAT_VERSION, body)


def commit(
    member: tuple[str, int, str], topic: str, partitions: Iterable[int], offset: int
) -> bytes:
    """Of a member (group, generation, member id), the same offset for all partitions."""
    group, generation, member_id = member
    rows = [struct.pack(">iqih", index, offset, -1, 0) for index in partitions]
    body = text(group) + struct.pack(">i", generation) + text(member_id) + struct.pack(">h", -1)
    body += struct.pack(">i", 1) + text(topic) + struct.pack(">i", len(rows)) + b"".join(rows)
    return frame(COMMIT, COMMIT_VERSION, body)


class Joined(NamedTuple):
    """What a JoinGroup answers; members are named to the leader only."""

    code: int
    generation: int
    leader: str
    member_id: str
    members: list[str]


def read_size(data: bytes, at: int) -> int:
    """Of the frame that begins there, behind these four bytes."""
    return int(struct.unpack_from(">i", data, at)[0])


def read_text(data: bytes, at: int) -> tuple[str, int]:
    (size,) = struct.unpack_from(">h", data, at)
    at += 2
    return data[at : at + max(size, 0)].decode(), at + max(size, 0)


def read_join(answer: bytes) -> Joined:
    _, code, generation = struct.unpack_from(">ihi", answer)
    _, at = read_text(answer, 10)
    leader, at = read_text(answer, at)
    member_id, at = read_text(answer, at)
    (count,) = struct.unpack_from(">i", answer, at)
    at += 4
    members = []
    for _ in range(count):
        name, at = read_text(answer, at)
        _, at = read_text(answer, at)
        (size,) = struct.unpack_from(">i", answer, at)
        at += 4 + size
        members.append(name)
    return Joined(code, generation, leader, member_id, members)


def read_code(answer: bytes) -> int:
    """Of SyncGroup and Heartbeat: behind the throttle time."""
    return int(struct.unpack_from(">h", answer, 4)[0])


def read_commit(answer: bytes) -> int:
    """The last error of an OffsetCommit, of any partition."""
    (topics,) = struct.unpack_from(">i", answer, 4)
    at, found = 8, NONE
    for _ in range(topics):
        _, at = read_text(answer, at)
        (count,) = struct.unpack_from(">i", answer, at)
        at += 4
        for _ in range(count):
            found = struct.unpack_from(">h", answer, at + 4)[0] or found
            at += 6
    return found


# ---- KIP-848


def varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*out, value))


def compact(value: str) -> bytes:
    return varint(len(value) + 1) + value.encode()


class Owned(NamedTuple):
    """What a member of the new protocol says that it has."""

    topic_id: bytes
    partitions: tuple[int, ...]


def consumer_heartbeat(
    group: str, member_id: str, epoch: int, topic: str | None, owned: Owned | None
) -> bytes:
    """`topic` is said when joining; `owned` None where it has not changed."""
    body = compact(group) + compact(member_id) + struct.pack(">i", epoch) + b"\0\0"
    body += struct.pack(">i", 300_000 if topic else -1)
    body += b"\0" if topic is None else varint(2) + compact(topic)
    body += b"\0\0"  # no expression, no assignor
    if owned is None:
        body += b"\0"
    elif not owned.partitions:
        body += varint(1)
    else:
        body += varint(2) + owned.topic_id + varint(len(owned.partitions) + 1)
        body += struct.pack(f">{len(owned.partitions)}i", *owned.partitions) + b"\0"
    return frame(CONSUMER_HEARTBEAT, CONSUMER_HEARTBEAT_VERSION, body + b"\0", b"\0")


class Beaten(NamedTuple):
    """What a ConsumerGroupHeartbeat answers; no assignment: as before."""

    code: int
    epoch: int
    interval_ms: int
    assigned: Owned | None


def read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def read_consumer_heartbeat(answer: bytes) -> Beaten:
    """`answer` begins behind the correlation id, with the header's tagged fields."""
    (code,) = struct.unpack_from(">h", answer, 5)
    size, at = read_varint(answer, 7)
    at += max(size - 1, 0)
    size, at = read_varint(answer, at)
    at += max(size - 1, 0)
    epoch, interval_ms, present = struct.unpack_from(">iib", answer, at)
    if present < 0:
        return Beaten(code, epoch, interval_ms, None)
    topics, at = read_varint(answer, at + 9)
    if topics <= 1:
        return Beaten(code, epoch, interval_ms, Owned(bytes(16), ()))
    topic_id = answer[at : at + 16]
    count, at = read_varint(answer, at + 16)
    partitions = struct.unpack_from(f">{count - 1}i", answer, at)
    return Beaten(code, epoch, interval_ms, Owned(topic_id, partitions))
