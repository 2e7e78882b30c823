"""What an assignor is told about a group."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

Assignment = Mapping[bytes, frozenset[int]]
"""Partitions by topic id; a topic without partitions is left out."""


class MemberSpec(NamedTuple):
    """A member: ids of the topics that it subscribes to and that exist, and its last target."""

    topic_ids: Collection[bytes]
    assignment: Assignment
    instance_id: str | None = None


class GroupSpec(NamedTuple):
    """The members in the order in which they are served.

    homogeneous: all subscribe to the same topics.
    owners:      who had which partition in the last target assignment.
    partitions:  how many each topic has that somebody subscribes to.
    """

    members: Mapping[str, MemberSpec]
    homogeneous: bool
    owners: Mapping[bytes, Mapping[int, str]]
    partitions: Mapping[bytes, int]
