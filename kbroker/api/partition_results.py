"""Results by topic and partition that come from two sides: what the handler refused, what the
coordinator answered."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kbroker.api.registry import Response
from kbroker.group.outcome import Outcome
from kbroker.operations import Steps


class PartitionResults:
    """Refused partitions, topic by topic in the order of the request."""

    def __init__(self, key: str) -> None:
        """`key` is the field that tells topics apart: "name" or "topic_id"."""
        self._key = key
        self._topics: dict[Any, dict[str, Any]] = {}

    def add(self, name: str, topic_id: bytes, indexes: Iterable[int], code: int) -> Steps[None]:
        """Refuse partitions of a topic."""
        topic = {"name": name, "topic_id": topic_id, "partitions": []}
        found = self._topics.setdefault(topic[self._key], topic)
        for index in indexes:
            yield
            found["partitions"].append({"partition_index": index, "error_code": code})

    def merged(self, topics: Sequence[dict[str, Any]]) -> Response:
        """The answer: the refused ones first, those of the coordinator with them or behind."""
        merged = dict(self._topics)
        for topic in topics:
            key = topic[self._key]
            found = merged.get(key)
            if found is None:
                merged[key] = topic
            else:
                partitions = [*found["partitions"], *topic["partitions"]]
                merged[key] = {**found, "partitions": partitions}
        return {"topics": list(merged.values())}

    def merge_into(self, outcome: Outcome) -> Outcome:
        """An outcome with the refused ones in its answer."""
        assert outcome.response is not None
        return outcome._replace(response=self.merged(outcome.response["topics"]))
