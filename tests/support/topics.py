"""Topics for coordinators that are driven without a broker."""

from __future__ import annotations

import hashlib
from collections.abc import Collection

from kbroker.group.topics import TopicInfo


class FakeTopics:
    """The topics of a cluster, changed by the test; a kbroker.group.topics.Topics."""

    def __init__(self, *infos: TopicInfo) -> None:
        self._names = {info.name: info for info in infos}
        self._ids = {info.topic_id: info for info in infos}
        self.version = 1

    def add(self, name: str, partitions: int, racks: Collection[str] = ()) -> bytes:
        """A topic, or more partitions for one; its id follows from its name and from what came
        before it."""
        known = self._names.get(name)
        told = f"{name} {self.version}".encode()
        topic_id = known.topic_id if known else hashlib.md5(told).digest()
        info = TopicInfo(name, topic_id, partitions, [frozenset(racks)] * partitions)
        self._names[name] = self._ids[topic_id] = info
        self.version += 1
        return topic_id

    def remove(self, name: str) -> None:
        """The topic is gone."""
        del self._ids[self._names.pop(name).topic_id]
        self.version += 1

    def by_name(self, name: str) -> TopicInfo | None:
        return self._names.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._ids.get(topic_id)

    def names(self) -> Collection[str]:
        return list(self._names)
