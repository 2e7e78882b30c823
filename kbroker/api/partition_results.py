"""Results by topic and partition that come from two sides: what the handler refused, what the
coordinator answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kbroker.api.registry import Response
from kbroker.group.outcome import Outcome


class PartitionResults:
    """Refused partitions, topic by topic in the order of the request."""

    def __init__(self, key: str) -> None:
        """`key` is the field that tells topics apart: "name" or "topic_id"."""
        self._key = key
        self._topics: dict[Any, dict[str, Any]] = {}

    def add(self, name: str, topic_id: bytes, indexes: Iterable[int], code: int) -> None:
        """Refuse partitions of a topic."""
        topic = {"name": name, "topic_id": topic_id, "partitions": []}
        found = self._topics.setdefault(topic[self._key], topic)
        found["partitions"] += [
            {"partition_index": index, "error_code": code} for index in indexes
        ]

    def merged(self, topics: Sequence[dict[str, Any]]) -> Response:
        """The answer: the refused ones first, those of the coordinator with them or behind."""
        if not self._topics:
            return {"topics": topics}
        merged = {
            key: {**topic, "partitions": list(topic["partitions"])}
            for key, topic in self._topics.items()
        }
        for topic in topics:
            found = merged.get(topic[self._key])
            if found is None:
                merged[topic[self._key]] = topic
            else:
                found["partitions"] += topic["partitions"]
        return {"topics": list(merged.values())}

    def merge_into(self, outcome: Outcome) -> Outcome:
        """An outcome with the refused ones in its answer."""
        assert outcome.response is not None
        return outcome._replace(response=self.merged(outcome.response["topics"]))
