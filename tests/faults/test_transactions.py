"""P5 and F24 on a live broker: frames that come late, twice, or from who was fenced long ago."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, WireConnection
from tests.txn.committed import Follower

END, OFFSETS, OFFSET_FETCH, ADD_PARTITIONS = 26, 28, 9, 24
NOT_READY = (14, 15, 16, 19, 51)
PARTITIONS = 2
TOPIC, GROUP = "t", "g"
TRANSACTIONS = 6
Frame = tuple[int, int, dict[str, Any]]
#: Answers to a frame that comes too late: it changed nothing. 0: it was an end told once more.
REFUSED = (0, 22, 45, 47, 48, 51, 90, 120)


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess]) -> BrokerProcess:
    settings = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "3"}
    made = start_kbroker(settings)
    wire.create_topic(made.port, TOPIC, PARTITIONS)
    for kind in (0, 1):
        body = {"key_type": kind, "coordinator_keys": [GROUP]}
        wire.call_once(made.port, FIND_COORDINATOR, 4, body)
    return made


def code_of(api: int, answer: dict[str, Any]) -> int:
    if api == PRODUCE:
        answer = answer["responses"][0]["partition_responses"][0]
    elif api == OFFSETS:
        answer = answer["topics"][0]["partitions"][0]
    return int(answer["error_code"])


class Schedule:
    """Transactions of one id, of whose frames some come twice, the second time whenever chance has
    it; and what a reader may see of them."""

    def __init__(self, connection: WireConnection, name: str, seed: int) -> None:
        self.connection, self.name, self.chance = connection, name, random.Random(seed)
        self.who: dict[str, Any] = {}
        self.sequences = [0] * PARTITIONS
        self.late: list[Frame] = []
        self.delivered = 0
        self.kept: list[bytes] = []
        self.offset = -1

    def call(self, frame: Frame) -> dict[str, Any]:
        """One frame, until it is answered; it may come once more."""
        if self.chance.random() < 0.5:
            self.late.append(frame)
        while self.late and self.chance.random() < 0.4:
            self._deliver()
        api, version, body = frame
        answer: dict[str, Any] = {}

        def is_answered() -> bool:
            nonlocal answer
            answer = self.connection.call(api, version, body)
            return code_of(api, answer) not in NOT_READY

        wait_for("an answer", is_answered, 60, 0.001)
        return answer

    def _deliver(self) -> None:
        api, version, body = self.late.pop(self.chance.randrange(len(self.late)))
        code = code_of(api, self.connection.call(api, version, body))
        assert code in REFUSED, f"{api} came late: {code}"
        self.delivered += 1

    def init(self) -> None:
        body = {"transactional_id": self.name, "transaction_timeout": 60_000}
        answer = self.call((INIT_PRODUCER_ID, 5, body))
        self.late = [one for one in self.late if one[0] != INIT_PRODUCER_ID]
        assert answer["error_code"] == 0, answer
        self._is(answer)

    def _is(self, answer: dict[str, Any]) -> None:
        self.who = {"transactional_id": self.name, "producer_id": answer["producer_id"],
                    "producer_epoch": answer["producer_epoch"]}  # fmt: skip
        self.sequences = [0] * PARTITIONS

    def run(self) -> None:
        self.init()
        for number in range(TRANSACTIONS):
            values = [self._send(number, n) for n in self._partitions()]
            offset = self._commit_offset(number) if self.chance.random() < 0.5 else self.offset
            if self.chance.random() < 0.15:
                self.init()  # what is open is aborted
                continue
            commit = self.chance.random() < 0.6
            answer = self.call((END, 5, self.who | {"committed": commit}))
            assert answer["error_code"] == 0, answer
            self._is(answer)
            if commit:
                self.kept += values
                self.offset = offset
        while self.late:
            self._deliver()
        self.init()  # whatever one of them may have opened would be seen here, or stay

    def _partitions(self) -> list[int]:
        return [self.chance.randrange(PARTITIONS) for _ in range(self.chance.randint(1, 3))]

    def _send(self, number: int, partition: int) -> bytes:
        value = f"{self.name} {number} {partition} {self.sequences[partition]}".encode()
        data = Batch(
            records=[Record(value)], producer_id=self.who["producer_id"],
            producer_epoch=self.who["producer_epoch"], attributes=TRANSACTIONAL,
            base_sequence=self.sequences[partition],
        ).encode()  # fmt: skip
        topic = {"name": TOPIC, "partition_data": [{"index": partition, "records": data}]}
        body = {"transactional_id": self.name, "acks": -1, "timeout": 30_000,
                "topic_data": [topic]}  # fmt: skip
        assert code_of(PRODUCE, self.call((PRODUCE, 12, body))) == 0
        self.sequences[partition] += 1
        return value

    def _commit_offset(self, number: int) -> int:
        part = {"partition_index": 0, "committed_offset": number, "committed_metadata": ""}
        topics = [{"name": TOPIC, "partitions": [part]}]
        body = self.who | {"group_id": self.name, "topics": topics}
        assert code_of(OFFSETS, self.call((OFFSETS, 5, body))) == 0
        return number


def committed_offset(port: int, group: str) -> int:
    """What a group has committed, once nothing is pending."""

    def ask() -> tuple[int] | None:
        topics = [{"name": TOPIC, "partition_indexes": [0]}]
        body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
        found = wire.call_once(port, OFFSET_FETCH, 8, body)["groups"][0]["topics"][0]
        part = found["partitions"][0]
        return None if part["error_code"] else (part["committed_offset"],)

    return int(wait_for("a stable offset", ask, 60)[0])


def watermarks(port: int) -> Iterator[tuple[int, int]]:
    """Last stable offset and high watermark of each partition."""
    for partition in range(PARTITIONS):
        part = {"partition": partition, "fetch_offset": 0, "partition_max_bytes": 1}
        body = {"replica_id": -1, "isolation_level": 1,
                "topics": [{"topic": TOPIC, "partitions": [part]}]}  # fmt: skip
        found = wire.call_once(port, wire.FETCH, 11, body)["responses"][0]["partitions"][0]
        yield found["last_stable_offset"], found["high_watermark"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("schedules", rounds(25, long=200, full=1_000))
def test_frames_that_come_late(broker: BrokerProcess, schedules: int, tally: Tally) -> None:
    """Whatever comes once more, and whenever: nothing is torn, added, or left open."""
    kept: list[bytes] = []
    delivered = torn = 0
    with WireConnection(broker.port, timeout_s=60) as connection:
        for seed in range(schedules):
            one = Schedule(connection, f"id-{seed}", seed)
            one.run()
            kept += one.kept
            delivered += one.delivered
            torn += committed_offset(broker.port, one.name) != one.offset
    wait_for("all is stable", lambda: all(a == b for a, b in watermarks(broker.port)), 60)
    seen = [
        found.value
        for partition in range(PARTITIONS)
        for found in Follower(TOPIC, partition).read(broker.port)
    ]
    torn += len(set(seen) ^ set(kept)) + abs(len(seen) - len(kept))
    tally("P5", tried=schedules, lost=torn)
    tally("F24", tried=delivered)
    assert sorted(seen) == sorted(kept)
    assert not torn
    assert delivered > schedules


def test_control_in_version_1_a_late_end_tears(broker: BrokerProcess, tally: Tally) -> None:
    """Before KIP-890 an end that comes late ends the next transaction: the judgement sees it."""
    with WireConnection(broker.port, timeout_s=60) as connection:
        one = Schedule(connection, "old", 0)
        one.chance = random.Random()
        one.chance.random = lambda: 1.0  # type: ignore[method-assign]  # nothing comes twice
        one.init()
        late = (END, 3, one.who | {"committed": True})
        for value in (b"first", b"second"):
            who = {f"v3_and_below_{key}": field for key, field in one.who.items()}
            body = who | {"v3_and_below_topics": [{"name": TOPIC, "partitions": [0]}]}
            wait_for("it is added", lambda body=body: added(connection, body), 60)
            send_older(one, value)
            if value == b"first":
                one.call(late)
        one.call(late)  # once more, before its producer has decided
    wait_for("all is stable", lambda: all(a == b for a, b in watermarks(broker.port)), 60)
    seen = [found.value for found in Follower(TOPIC, 0).read(broker.port)]
    tally("P5", control=int(b"second" in seen))
    assert seen == [b"first", b"second"]


def added(connection: WireConnection, body: dict[str, Any]) -> bool:
    answer = connection.call(ADD_PARTITIONS, 3, body)["results_by_topic_v3_and_below"][0]
    return not answer["results_by_partition"][0]["partition_error_code"]


def send_older(one: Schedule, value: bytes) -> None:
    """A Produce of a client that adds partitions by itself."""
    data = Batch(
        records=[Record(value)], producer_id=one.who["producer_id"], attributes=TRANSACTIONAL,
        producer_epoch=one.who["producer_epoch"], base_sequence=one.sequences[0],
    ).encode()  # fmt: skip
    topic = {"name": TOPIC, "partition_data": [{"index": 0, "records": data}]}
    body = {"transactional_id": one.name, "acks": -1, "timeout": 30_000, "topic_data": [topic]}
    assert code_of(PRODUCE, one.call((PRODUCE, 9, body))) == 0
    one.sequences[0] += 1
