"""Partitions and positions as users of the client name them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

__all__ = [
    "OffsetAndMetadata",
    "OffsetsGiven",
    "TopicPartition",
    "checked_offsets",
    "checked_partition",
    "checked_partitions",
]

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1


class TopicPartition(NamedTuple):
    """A partition of a topic; equal to the plain tuple (topic, partition)."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """What is committed for a partition.

    offset: of the next record to be read. leader_epoch: of the last record read, -1 where it is
    not known. metadata: any text of the committer's.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = -1


OffsetsGiven = (
    Mapping[TopicPartition, OffsetAndMetadata | int]
    | Mapping[tuple[str, int], OffsetAndMetadata | int]
)
"""Offsets to be committed, as a user gives them; two, since a mapping's keys do not vary."""


def checked_partition(where: Any, what: str = "partitions") -> TopicPartition:
    """One of them."""
    where = tuple(where) if isinstance(where, list) else where
    if not (isinstance(where, tuple) and len(where) == 2 and isinstance(where[0], str)):
        raise TypeError(f"{what}: {where!r} is no (topic, partition)")
    topic, partition = where
    number = _checked_number(partition, f"partition {partition!r} of {topic!r}", _INT32_MAX)
    return TopicPartition(str.__str__(topic), number)  # of a StrEnum as well


def checked_partitions(given: Iterable[Any]) -> list[TopicPartition]:
    """Partitions that a user names. Raises TypeError or ValueError that names what is none."""
    if isinstance(given, str):
        raise TypeError(f"partitions: {given!r} is no list of (topic, partition)")
    return [checked_partition(where) for where in given]


def checked_offsets(offsets: Any) -> dict[TopicPartition, OffsetAndMetadata]:
    """Offsets to be committed, by (topic, partition): numbers, or OffsetAndMetadata.

    Raises TypeError or ValueError that names what cannot be committed.
    """
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets: {type(offsets).__name__} is no mapping of (topic, partition) to offsets"
        )
    return {
        (found := checked_partition(where, "offsets")): _checked_offset(found, told)
        for where, told in offsets.items()
    }


def _checked_offset(where: TopicPartition, told: Any) -> OffsetAndMetadata:
    """Of a plain tuple as well, as it stands in OffsetAndMetadata."""
    fields = told if isinstance(told, tuple) else (told,)
    if not 1 <= len(fields) <= len(OffsetAndMetadata._fields):
        raise TypeError(f"offsets: {told!r} of {where} is no offset")
    offset, metadata, epoch = OffsetAndMetadata(*fields)
    if not isinstance(metadata, str | None):
        raise TypeError(f"metadata {metadata!r} of {where} is not str")
    return OffsetAndMetadata(
        _checked_number(offset, f"offset {offset!r} of {where}", _INT64_MAX),
        metadata or "",
        _checked_number(epoch, f"leader_epoch {epoch!r} of {where}", _INT32_MAX, least=-1),
    )


def _checked_number(given: Any, what: str, most: int, least: int = 0) -> int:
    try:
        number = operator.index(given)  # numpy's as well
    except TypeError:
        raise TypeError(f"{what} is no whole number") from None
    if number < least:
        raise ValueError(f"{what} is {'negative' if least == 0 else f'below {least}'}")
    if number > most:
        raise ValueError(f"{what} is above {most}")
    return number
