"""What classic members hold in memory that no record of `__consumer_offsets` holds.

A generation is written once its leader has given the assignments. Until then, and as long as
members like, their metadata is in memory only; so it is bounded over all groups of the broker, and
so are the ids that were given out to who has not joined yet. Apache Kafka has no such bound. What
is written is bounded by the log.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from sys import getsizeof
from typing import Final

from kbroker.limits import RECORD_BATCH_HEADER_BYTES, UNWRITTEN_MEMBERS_MAX_BYTES

MEMBER_BYTES: Final = 1_024
"""A member whose metadata and ids are empty, with its timer and its place in the group."""


def bytes_of(protocols: Iterable[tuple[str, bytes]], ids: Iterable[str | None] = ()) -> int:
    """The memory of a member with this metadata and these ids, which may be long as well."""
    return MEMBER_BYTES + metadata_bytes(protocols) + sum(map(getsizeof, ids))


def id_bytes(member_id: str) -> int:
    """The memory of an id that was given out, with its timer, until its member joins (KIP-394)."""
    return bytes_of((), (member_id,))


def metadata_bytes(protocols: Iterable[tuple[str, bytes]]) -> int:
    """The memory of metadata alone. Of a name it is up to four times its characters."""
    return sum(getsizeof(name) + len(metadata) for name, metadata in protocols)


def _unbounded() -> int | None:
    return None


class Unwritten:
    """The sum, shared by all shards. Owned by the control thread."""

    def __init__(self, batch_bytes_max: Callable[[], int | None] = _unbounded) -> None:
        """`batch_bytes_max`: of a batch as members' metadata is in it; None where it is compressed,
        as nobody knows how small it gets."""
        self.bytes = 0
        self._batch_bytes_max = batch_bytes_max

    def has_record_for(self, metadata_bytes: int) -> bool:
        """Whether a record can hold a member with so much metadata."""
        most = self._batch_bytes_max()
        return most is None or metadata_bytes + RECORD_BATCH_HEADER_BYTES <= most

    def has_room_for(self, more: int) -> bool:
        """Whether members may hold so much more; to hold less is always possible."""
        return more <= 0 or self.bytes + more <= UNWRITTEN_MEMBERS_MAX_BYTES
