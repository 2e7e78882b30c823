"""What the coordinator asks about topics; the runtime answers it from the metadata image."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, Protocol


class TopicInfo(NamedTuple):
    """A topic as assignors see it; racks[p] are the racks on which partition p has replicas."""

    name: str
    topic_id: bytes
    partitions: int
    racks: Sequence[frozenset[str]] = ()


class Topics(Protocol):
    """The topics of the cluster at this moment."""

    def by_name(self, name: str) -> TopicInfo | None: ...
    def by_id(self, topic_id: bytes) -> TopicInfo | None: ...
    def names(self) -> Collection[str]:
        """All topics, internal ones too."""

    @property
    def version(self) -> int:
        """Changes whenever a topic comes, goes or gets partitions: a cheap "nothing is new"."""
