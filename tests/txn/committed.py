"""What a reader of committed records finds in a partition, by frames, from where it was on."""

from __future__ import annotations

from typing import Any, NamedTuple

from tests.reference.crafted_batches import parse_batches
from tests.support.wire import FETCH, WireConnection

CONTROL, TRANSACTIONAL = 0x20, 0x10
_ISOLATION = 1


class Found(NamedTuple):
    """A record."""

    offset: int
    key: bytes
    value: bytes


class Follower:
    """Reads on in one partition; what was aborted is left out as a client leaves it out."""

    def __init__(self, topic: str, partition: int, offset: int = 0) -> None:
        self.topic, self.partition, self.offset = topic, partition, offset

    def read(self, port: int) -> list[Found]:
        """All up to the last stable offset of now."""
        found: list[Found] = []
        with WireConnection(port, timeout_s=60) as connection:
            while answer := self._fetch(connection):
                found += self._left(answer)
        return found

    def _fetch(self, connection: WireConnection) -> dict[str, Any] | None:
        part = {"partition": self.partition, "fetch_offset": self.offset,
                "partition_max_bytes": 1 << 18}  # fmt: skip
        body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "isolation_level": _ISOLATION,
                "topics": [{"topic": self.topic, "partitions": [part]}]}  # fmt: skip
        answer: dict[str, Any] = connection.call(FETCH, 11, body)["responses"][0]["partitions"][0]
        assert answer["error_code"] == 0, answer
        if answer["records"]:
            return answer
        assert self.offset == answer["last_stable_offset"], f"{self.offset} of {answer}"
        return None

    def _left(self, answer: dict[str, Any]) -> list[Found]:
        aborted = sorted(
            (one["first_offset"], one["producer_id"])
            for one in answer["aborted_transactions"] or ()
        )
        dropping: set[int] = set()
        found, start = [], self.offset
        for batch in parse_batches(answer["records"]):
            if "records" not in batch:
                break
            last = batch["base_offset"] + batch["last_offset_delta"]
            while aborted and aborted[0][0] <= last:
                dropping.add(aborted.pop(0)[1])
            if batch["attributes"] & CONTROL:
                dropping.discard(batch["producer_id"])
            elif not (batch["attributes"] & TRANSACTIONAL and batch["producer_id"] in dropping):
                found += [
                    Found(batch["base_offset"] + one["offset_delta"], one["key"], one["value"])
                    for one in batch["records"]
                    if batch["base_offset"] + one["offset_delta"] >= start
                ]
            self.offset = last + 1
        return found
