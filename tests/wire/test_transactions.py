"""Transactions over kills and restarts of the broker, with and without its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record, parse_batches
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FETCH, FIND_COORDINATOR, INIT_PRODUCER_ID, PRODUCE, WireConnection

END, OFFSETS, DESCRIBE_PRODUCERS, DESCRIBE, LIST = 26, 28, 61, 65, 66
OFFSET_FETCH = 9
NOT_READY = (14, 15, 16, 51)
CONTROL = 0x20
COMMITTED = 1


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., KbrokerProcess]]:
    """A kbroker with a topic `t` of two partitions and both coordinators."""
    made: list[KbrokerProcess] = []

    def run(**settings: str) -> KbrokerProcess:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        broker = KbrokerProcess(tmp_path, named)
        made.append(broker)
        broker.start()
        wire.create_topic(broker.port, "t", 2)
        for kind in (0, 1):
            body = {"key_type": kind, "coordinator_keys": ["g"]}
            wire.call_once(broker.port, FIND_COORDINATOR, 4, body)
        return broker

    yield run
    for broker in made:
        broker.kill()


class Producer:
    """A producer of protocol version 2 that survives the broker's restarts."""

    produces = 12  # the version of Produce

    def __init__(self, broker: KbrokerProcess, name: str = "id", timeout_ms: int = 60_000) -> None:
        self.broker, self.name, self.timeout_ms = broker, name, timeout_ms
        self.id, self.epoch = -1, -1
        self.sequences: dict[int, int] = {}

    def call(self, api: int, version: int, body: dict[str, Any]) -> dict[str, Any]:
        with WireConnection(self.broker.port, timeout_s=60) as connection:
            return connection.call(api, version, body)

    def until(self, what: str, ask: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Asked again while the coordinator is not ready."""

        def attempt() -> dict[str, Any] | None:
            answer = ask()
            return None if answer["error_code"] in NOT_READY else answer

        answer: dict[str, Any] = wait_for(what, attempt, 60)
        assert answer["error_code"] == 0, answer
        return answer

    def init(self) -> None:
        body = {"transactional_id": self.name, "transaction_timeout": self.timeout_ms}
        answer = self.until("a producer id", lambda: self.call(INIT_PRODUCER_ID, 5, body))
        self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.sequences = {}

    @property
    def who(self) -> dict[str, Any]:
        return {
            "transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch,
        }  # fmt: skip

    def send(self, value: bytes, partition: int = 0) -> None:
        data = Batch(
            records=[Record(value)], producer_id=self.id, producer_epoch=self.epoch,
            base_sequence=self.sequences.get(partition, 0), attributes=TRANSACTIONAL,
            base_timestamp=1_700_000_000_000,
        ).encode()  # fmt: skip
        topic = {"name": "t", "partition_data": [{"index": partition, "records": data}]}
        body = {"transactional_id": self.name, "acks": -1, "timeout": 30_000,
                "topic_data": [topic]}  # fmt: skip

        def ask() -> dict[str, Any]:
            answer = self.call(PRODUCE, self.produces, body)
            found: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
            return found | {"error_code": 15 if found["error_code"] == 19 else found["error_code"]}

        self.until("a record is taken", ask)
        self.sequences[partition] = self.sequences.get(partition, 0) + 1

    def end(self, commit: bool) -> None:
        body = self.who | {"committed": commit}
        answer = self.until("the end", lambda: self.call(END, 5, body))
        self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        self.sequences = {}

    def commit_offset(self, group: str, offset: int) -> None:
        part = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        body = self.who | {"group_id": group, "topics": [{"name": "t", "partitions": [part]}]}

        def ask() -> dict[str, Any]:
            found: dict[str, Any] = self.call(OFFSETS, 5, body)["topics"][0]["partitions"][0]
            return found

        self.until("an offset is taken", ask)

    def state(self) -> str:
        def ask() -> dict[str, Any]:
            body = {"transactional_ids": [self.name]}
            found: dict[str, Any] = self.call(DESCRIBE, 0, body)["transaction_states"][0]
            return found

        return str(self.until("the state", ask)["transaction_state"])

    def until_state(self, *states: str) -> None:
        wait_for(f"the transaction is {states}", lambda: self.state() in states, 60)


def read(broker: KbrokerProcess, partition: int = 0, isolation: int = COMMITTED) -> list[bytes]:
    """Values that a reader of this isolation sees, as a client leaves out what was aborted."""
    values: list[bytes] = []
    aborting: set[int] = set()
    offset, end = 0, 1
    with WireConnection(broker.port, timeout_s=60) as connection:
        while offset < end:
            part = {"partition": partition, "fetch_offset": offset, "partition_max_bytes": 1 << 20}
            body = {"replica_id": -1, "max_wait": 0, "min_bytes": 0, "isolation_level": isolation,
                    "topics": [{"topic": "t", "partitions": [part]}]}  # fmt: skip
            found = connection.call(FETCH, 11, body)["responses"][0]["partitions"][0]
            assert found["error_code"] == 0
            end = found["last_stable_offset" if isolation else "high_watermark"]
            batches = parse_batches(found["records"] or b"")
            if not batches:
                break
            dropped = found["aborted_transactions"] or ()
            for batch in batches:
                producer, at = batch["producer_id"], batch["base_offset"]
                if any(one["producer_id"] == producer and offset <= one["first_offset"] == at
                       for one in dropped):  # fmt: skip
                    aborting.add(producer)
                if batch["attributes"] & CONTROL:
                    aborting.discard(producer)
                elif producer not in aborting:
                    values += [record["value"] for record in batch["records"]]
            offset = batches[-1]["base_offset"] + batches[-1]["last_offset_delta"] + 1
    return values


def offset_of(broker: KbrokerProcess, group: str) -> int:
    """What a group has committed, once it is stable."""

    def ask() -> tuple[int] | None:
        topics = [{"name": "t", "partition_indexes": [0]}]
        body = {"groups": [{"group_id": group, "topics": topics}], "require_stable": True}
        found = wire.call_once(broker.port, OFFSET_FETCH, 8, body)["groups"][0]
        if found["error_code"] or found["topics"][0]["partitions"][0]["error_code"]:
            return None
        return (found["topics"][0]["partitions"][0]["committed_offset"],)

    return int(wait_for("a stable offset", ask, 60)[0])


DURABILITY = pytest.mark.parametrize("durability", ["fsync", "page-cache"])


@DURABILITY
def test_an_open_transaction_outlives_the_broker(
    start: Callable[..., KbrokerProcess], durability: str
) -> None:
    """It goes on where it was, and ends as its producer says."""
    broker = start(kbroker_durability=durability)
    kept, dropped = Producer(broker, "kept"), Producer(broker, "dropped")
    for producer in (kept, dropped):
        producer.init()
        producer.send(producer.name.encode(), 0)
        producer.send(producer.name.encode(), 1)
        producer.commit_offset(producer.name, 7)
    broker.kill()
    broker.start()
    assert [kept.state(), dropped.state()] == ["Ongoing", "Ongoing"]
    assert read(broker) == []
    assert len(read(broker, isolation=0)) == 2
    kept.send(b"more", 1)
    kept.end(True)
    dropped.end(False)
    for producer in (kept, dropped):
        producer.until_state("CompleteCommit", "CompleteAbort")
    assert read(broker) == [b"kept"]
    assert read(broker, 1) == [b"kept", b"more"]
    assert offset_of(broker, "kept") == 7
    assert offset_of(broker, "dropped") == -1


@DURABILITY
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_outlives_the_broker(
    start: Callable[..., KbrokerProcess], durability: str, commit: bool
) -> None:
    """Killed right after it was told, whatever of the markers is written by then."""
    broker = start(kbroker_durability=durability)
    producer = Producer(broker)
    producer.init()
    kept: list[bytes] = []
    for number in range(4):
        value = b"%d" % number
        producer.send(value, 0)
        producer.send(value, 1)
        producer.commit_offset("g", number)
        producer.end(commit)
        broker.kill()
        broker.start()
        kept += [value] if commit else []
        producer.until_state("CompleteCommit" if commit else "CompleteAbort")
        assert read(broker) == kept
        assert read(broker, 1) == kept
        assert offset_of(broker, "g") == (number if commit else -1)


def test_restarts_and_clean_stops(start: Callable[..., KbrokerProcess]) -> None:
    broker = start()
    producer = Producer(broker)
    producer.init()
    for number in range(4):
        producer.send(b"%d" % number, number % 2)
        (broker.stop if number % 2 else broker.kill)()
        broker.start()
        producer.end(number != 2)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"0"]
    assert read(broker, 1) == [b"1", b"3"]


def test_overdue(start: Callable[..., KbrokerProcess]) -> None:
    """A transaction that is open for too long is aborted, its producer fenced."""
    broker = start(transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
    producer = Producer(broker, timeout_ms=500)
    producer.init()
    producer.send(b"lost")
    producer.until_state("CompleteAbort")
    wait_for("the last stable offset moves", lambda: read(broker, isolation=0) == [b"lost"], 60)
    assert read(broker) == []
    answer = producer.call(END, 5, producer.who | {"committed": True})
    assert answer["error_code"] in (48, 90)
    producer.init()
    producer.send(b"kept")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"kept"]


def test_expired_ids_are_forgotten(start: Callable[..., KbrokerProcess]) -> None:
    broker = start(
        transactional_id_expiration_ms="200",
        transaction_remove_expired_transaction_cleanup_interval_ms="100",
    )
    producer = Producer(broker)
    producer.init()
    body = {"state_filters": [], "producer_id_filters": []}
    wait_for("it is gone", lambda: not producer.call(LIST, 0, body)["transaction_states"], 60)


def test_a_read_committed_reader_waits_for_the_end(start: Callable[..., KbrokerProcess]) -> None:
    """A long poll at the last stable offset is answered by the marker, not by what is open."""
    broker = start()
    producer = Producer(broker)
    producer.init()
    producer.send(b"a")
    with WireConnection(broker.port, timeout_s=90) as reader:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait": 60_000, "min_bytes": 1, "isolation_level": COMMITTED,
                "topics": [{"topic": "t", "partitions": [part]}]}  # fmt: skip
        sent = reader.send(FETCH, 11, body)
        producer.send(b"b")
        producer.end(True)
        answer = reader.receive(FETCH, 11, sent)
    found = answer["responses"][0]["partitions"][0]
    assert found["last_stable_offset"] == found["high_watermark"] == 3
    assert found["aborted_transactions"] == []


def test_nothing_is_left_of_a_producer_that_went_away(
    start: Callable[..., KbrokerProcess],
) -> None:
    """Its connection dies while the coordinator is asked: the record is there or not, and the
    transaction can be ended."""
    broker = start()
    producer = Producer(broker)
    producer.init()
    for number in range(20):
        data = Batch(
            records=[Record(b"%d" % number)], producer_id=producer.id,
            producer_epoch=producer.epoch, base_sequence=0, attributes=TRANSACTIONAL,
        ).encode()  # fmt: skip
        topic = {"name": "t", "partition_data": [{"index": 0, "records": data}]}
        body = {"transactional_id": "id", "acks": -1, "timeout": 30_000, "topic_data": [topic]}
        with WireConnection(broker.port) as connection:
            connection.send(0, 12, body)
        producer.init()
    producer.send(b"last")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"last"]
