"""A transactional producer of the scripts."""

from __future__ import annotations

from typing import Any

from tests.differential.harness import Script
from tests.reference.crafted_batches import TRANSACTIONAL
from tests.support import wire
from tests.support.waits import wait_for

INIT, ADD_PARTITIONS, END, DESCRIBE = 22, 24, 26, 65
CONCURRENT = 51
COORDINATOR_NOT_READY = (14, 15, 16, 51)


class Producer:
    """A transactional producer that speaks one version of the protocol: 1, or 2 (KIP-890)."""

    def __init__(self, s: Script, protocol: int, short: str = "id", timeout_ms: int = 60_000):
        self.s, self.protocol, self.timeout_ms = s, protocol, timeout_ms
        self.name = s.name(short)
        self.id, self.epoch, self.sequence = -1, -1, 0
        s.until_coordinator(1)

    def init(self, **fields: Any) -> dict[str, Any]:
        """InitProducerId, asked again while an abort goes on."""
        body = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms} | fields
        answer: dict[str, Any] = {}

        def is_answered() -> bool:
            nonlocal answer
            answer = self.s.connection.call(INIT, self.protocol + 3, body)
            return answer["error_code"] not in COORDINATOR_NOT_READY

        wait_for("a producer id", is_answered, 30)
        self.s.note("init", answer)
        if answer["error_code"] == 0:
            self.id, self.epoch, self.sequence = answer["producer_id"], answer["producer_epoch"], 0
        return answer

    @property
    def who(self) -> dict[str, Any]:
        fields = ("transactional_id", "producer_id", "producer_epoch")
        return dict(zip(fields, (self.name, self.id, self.epoch), strict=True))

    def add(self, *topics: str, version: int = 3, **fields: Any) -> dict[str, Any]:
        """AddPartitionsToTxn with partition 0 of topics."""
        who = {f"v3_and_below_{key}": value for key, value in (self.who | fields).items()}
        asked = [{"name": topic, "partitions": [0]} for topic in topics]
        return self.s.call(ADD_PARTITIONS, version, who | {"v3_and_below_topics": asked})

    def send(self, topic: str, *values: bytes, version: int | None = None, **fields: Any) -> Any:
        """Produces to partition 0; `at_once`: while the transaction before may still be ending,
        which is asked again and not noted."""
        at_once = fields.pop("at_once", False)
        transactional_id = fields.pop("transactional_id", self.name)
        stamp = {"producer_id": self.id, "producer_epoch": self.epoch,
                 "base_sequence": self.sequence, "attributes": TRANSACTIONAL}  # fmt: skip
        data = self.s.batch(*values, **stamp | fields)
        version = version or (12 if self.protocol == 2 else 9)
        body = self.s.produce_body({topic: {0: data}}, version)
        body |= {"transactional_id": transactional_id}
        if at_once:
            answer = self._until_taken(version, body)
        else:
            answer = self.s.call(0, version, body, without_log_start)
        found = answer["responses"][0]["partition_responses"][0] if answer else {}
        if found.get("error_code") == 0:
            self.sequence += max(len(values), 1)
        return found

    def _until_taken(self, version: int, body: dict[str, Any]) -> dict[str, Any]:
        answer: dict[str, Any] = {}

        def is_answered() -> bool:
            nonlocal answer
            answer = self.s.connection.call(0, version, body)
            found = answer["responses"][0]["partition_responses"][0]
            return found["error_code"] != CONCURRENT

        wait_for("the end of the one before", is_answered, 30)
        self.s.note("sent at once", without_log_start(answer))
        return answer

    def end(
        self, commit: bool, version: int | None = None, *, waits: bool = True, **fields: Any
    ) -> dict[str, Any]:
        version = version if version is not None else (5 if self.protocol == 2 else 3)
        answer = self.s.call(END, version, self.who | {"committed": commit} | fields)
        if answer.get("error_code") == 0:
            if waits:
                self.until_complete()
            if answer.get("producer_id", -1) >= 0:
                self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
                self.sequence = 0
        return answer

    def state(self) -> str:
        answer = wire.call_once(
            self.s.broker.port, DESCRIBE, 0, {"transactional_ids": [self.name]}
        )
        return str(answer["transaction_states"][0]["transaction_state"])

    def until_complete(self) -> None:
        wait_for("the end", lambda: self.state() in ("CompleteCommit", "CompleteAbort"), 30)

    def described(self) -> None:
        """Notes what DescribeTransactions tells, but for when it began."""

        def keep(answer: dict[str, Any]) -> Any:
            states = answer["transaction_states"]
            for one in states:
                one["transaction_start_time"] = one.get("transaction_start_time", 0) != -1
                for topic in one["topics"]:
                    if topic["topic"] == "__consumer_offsets":
                        topic["partitions"] = len(topic["partitions"])
            return states

        self.s.call(DESCRIBE, 0, {"transactional_ids": [self.name]}, keep)


def without_log_start(answer: dict[str, Any]) -> Any:
    """Kafka tells none where the coordinator refused; kbroker's log knows some zombies itself."""
    found = answer["responses"][0]["partition_responses"][0]
    return found | {"log_start_offset": -1} if found["error_code"] else answer
