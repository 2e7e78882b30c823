"""Transactions over kills and restarts of the broker, with and without its journal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.cli import root
from tests.reference.crafted_batches import TRANSACTIONAL, Batch, Record, parse_batches
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.state_damage import check_is_told, flip
from tests.support.transactional import WireProducer, committed_offset
from tests.support.waits import wait_for
from tests.support.wire import FETCH, FIND_COORDINATOR, WireConnection

END, MARKERS, LIST = 26, 27, 66
INVALID_TXN_STATE, UNKNOWN_PARTITION, TIMED_OUT = 48, 3, 7
FENCED = (49, 90)
"""INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED."""
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


DURABILITY = pytest.mark.parametrize("durability", ["fsync", "page-cache"])


@DURABILITY
def test_an_open_transaction_outlives_the_broker(
    start: Callable[..., KbrokerProcess], durability: str
) -> None:
    """It goes on where it was, and ends as its producer says."""
    broker = start(kbroker_durability=durability)
    kept, dropped = WireProducer(broker, "kept"), WireProducer(broker, "dropped")
    for producer in (kept, dropped):
        producer.init()
        producer.send("t", 0, producer.name.encode())
        producer.send("t", 1, producer.name.encode())
        producer.commit_offset(producer.name, "t", 7)
    broker.kill()
    broker.start()
    for producer in (kept, dropped):
        producer.until_state("Ongoing")
    assert read(broker) == []
    assert len(read(broker, isolation=0)) == 2
    kept.send("t", 1, b"more")
    kept.end(True)
    dropped.end(False)
    for producer in (kept, dropped):
        producer.until_state("CompleteCommit", "CompleteAbort")
    assert read(broker) == [b"kept"]
    assert read(broker, 1) == [b"kept", b"more"]
    assert committed_offset(broker, "kept", "t") == 7
    assert committed_offset(broker, "dropped", "t") == -1


@DURABILITY
@pytest.mark.parametrize("commit", [True, False])
def test_a_decision_outlives_the_broker(
    start: Callable[..., KbrokerProcess], durability: str, commit: bool
) -> None:
    """Killed right after it was told, whatever of the markers is written by then."""
    broker = start(kbroker_durability=durability)
    producer = WireProducer(broker, "id")
    producer.init()
    kept: list[bytes] = []
    for number in range(4):
        value = b"%d" % number
        producer.send("t", 0, value)
        producer.send("t", 1, value)
        producer.commit_offset("g", "t", number)
        producer.end(commit)
        broker.kill()
        broker.start()
        kept += [value] if commit else []
        producer.until_state("CompleteCommit" if commit else "CompleteAbort")
        assert read(broker) == kept
        assert read(broker, 1) == kept
        assert committed_offset(broker, "g", "t") == (number if commit else -1)


def test_restarts_and_clean_stops(start: Callable[..., KbrokerProcess]) -> None:
    broker = start()
    producer = WireProducer(broker, "id")
    producer.init()
    for number in range(4):
        producer.send("t", number % 2, b"%d" % number)
        (broker.stop if number % 2 else broker.kill)()
        broker.start()
        producer.end(number != 2)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"0"]
    assert read(broker, 1) == [b"1", b"3"]


def test_overdue(start: Callable[..., KbrokerProcess]) -> None:
    """A transaction that is open for too long is aborted, its producer fenced."""
    broker = start(transaction_abort_timed_out_transaction_cleanup_interval_ms="100")
    producer = WireProducer(broker, "id", timeout_ms=500)
    producer.init()
    producer.send("t", 0, b"lost")
    producer.until_state("CompleteAbort")
    wait_for("the last stable offset moves", lambda: read(broker, isolation=0) == [b"lost"], 60)
    assert read(broker) == []
    answer = wire.call_once(broker.port, END, 5, producer.who | {"committed": True})
    assert answer["error_code"] == INVALID_TXN_STATE, "as Apache Kafka 4.3: one epoch behind"
    producer.init()
    producer.send("t", 0, b"kept")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"kept"]


def test_expired_ids_are_forgotten(start: Callable[..., KbrokerProcess]) -> None:
    broker = start(
        transactional_id_expiration_ms="200",
        transaction_remove_expired_transaction_cleanup_interval_ms="100",
    )
    producer = WireProducer(broker, "id")
    producer.init()
    body = {"state_filters": [], "producer_id_filters": []}

    def known() -> list[object]:
        found: list[object] = wire.call_once(broker.port, LIST, 0, body)["transaction_states"]
        return found

    wait_for("it is gone", lambda: not known(), 60)


def test_a_read_committed_reader_waits_for_the_end(start: Callable[..., KbrokerProcess]) -> None:
    """A long poll at the last stable offset is answered by the marker, not by what is open."""
    broker = start()
    producer = WireProducer(broker, "id")
    producer.init()
    producer.send("t", 0, b"a")
    with WireConnection(broker.port, timeout_s=90) as reader:
        part = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1 << 20}
        body = {"replica_id": -1, "max_wait": 60_000, "min_bytes": 1, "isolation_level": COMMITTED,
                "topics": [{"topic": "t", "partitions": [part]}]}  # fmt: skip
        sent = reader.send(FETCH, 11, body)
        producer.send("t", 0, b"b")
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
    producer = WireProducer(broker, "id")
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
    producer.send("t", 0, b"last")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"last"]


def test_a_flipped_byte_costs_no_more_than_its_batch(
    start: Callable[..., KbrokerProcess], capsys: pytest.CaptureFixture[str]
) -> None:
    """Of two ids of one partition the first one's only batch is damaged: it begins anew, the
    other one goes on, and the damage is told wherever somebody looks."""
    broker = start(transaction_state_log_num_partitions="1")
    for name in ("hit", "sound"):
        producer = WireProducer(broker, name)
        producer.init()
    producer.send("t", 0, b"open")
    assert broker.stop() == 0
    (log,) = broker.data_dir.glob("__transaction_state-0/*.log")
    flip(log, 70)
    broker.start()
    told = wire.call_once(broker.port, LIST, 0, {"state_filters": [], "producer_id_filters": []})
    assert told["error_code"] == 0
    assert [one["transactional_id"] for one in told["transaction_states"]] == ["sound"]
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"open"]
    again = WireProducer(broker, "hit")
    again.init()
    again.send("t", 1, b"anew")
    again.end(True)
    again.until_state("CompleteCommit")
    assert read(broker, 1) == [b"anew"]
    check_is_told(broker, capsys, "transaction", log)


def damage(log: Path, count: int) -> None:
    """Flip a bit in each of the last batches."""
    data, places = log.read_bytes(), [0]
    while length := int.from_bytes(data[places[-1] + 8 : places[-1] + 12]):
        places.append(places[-1] + 12 + length)
    for place in places[-1 - count : -1]:
        flip(log, place + 70)


@pytest.mark.parametrize("protocol", [1, 2])
def test_nothing_of_a_transaction_in_doubt_is_committed(
    start: Callable[..., KbrokerProcess], protocol: int
) -> None:
    """The record that added its second partition is damaged, and dropped behind the next start:
    its producer can neither go on nor commit, a new one is a new one."""
    broker = start(transaction_state_log_num_partitions="1")
    producer = WireProducer(broker, "id", protocol)
    producer.init()
    producer.send("t", 0, b"half")
    producer.send("t", 1, b"other half")
    assert broker.stop() == 0
    (log,) = broker.data_dir.glob("__transaction_state-0/*.log")
    damage(log, 1)
    assert root.run(["log", "repair", str(log), "--drop"]) == 1, "a start is to meet it first"
    broker.start()
    producer.until_state("CompleteAbort")
    before = producer.id
    version = 3 if protocol == 1 else 5
    for committed in (True, False):
        answer = wire.call_once(broker.port, END, version, producer.who | {"committed": committed})
        assert answer["error_code"] in FENCED
    assert broker.stop() == 0
    assert root.run(["log", "repair", str(log), "--drop"]) == 0
    broker.start()
    producer.init()
    assert producer.id != before
    producer.send("t", 0, b"whole")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"whole"]
    assert read(broker, 1) == []


@pytest.mark.parametrize("protocol", [1, 2])
def test_a_decision_says_nothing_of_what_is_open_by_now(
    start: Callable[..., KbrokerProcess], protocol: int
) -> None:
    """What stands behind the decision is damaged: that it was done, and the next transaction."""
    broker = start(transaction_state_log_num_partitions="1")
    producer = WireProducer(broker, "id", protocol)
    producer.init()
    producer.send("t", 0, b"first")
    producer.end(True)
    producer.until_state("CompleteCommit")
    before = producer.id
    producer.send("t", 0, b"second")
    assert broker.stop() == 0
    (log,) = broker.data_dir.glob("__transaction_state-0/*.log")
    damage(log, 2)
    broker.start()
    producer.init()
    assert producer.id != before
    producer.send("t", 1, b"third")
    producer.end(True)
    producer.until_state("CompleteCommit")
    assert read(broker) == [b"first"], "the second is open, and nobody committed it"
    assert read(broker, 1) == [b"third"]


def test_of_one_request_so_many_markers_are_written(start: Callable[..., KbrokerProcess]) -> None:
    """Coordinators ask again for the rest. An id or an epoch that no producer has is refused."""
    broker = start()
    parts = [{"name": "t", "partition_indexes": list(range(2, 10_003))}]
    marker = {"producer_id": 7, "producer_epoch": 0, "coordinator_epoch": 0,
              "transaction_result": True, "topics": parts}  # fmt: skip
    bad = marker | {"topics": [{"name": "t", "partition_indexes": [0]}]}
    asked = [marker, bad | {"producer_id": -1}, bad | {"producer_id": 8, "producer_epoch": -1}]
    told = wire.call_once(broker.port, MARKERS, 1, {"markers": asked})["markers"]
    codes = {one["producer_id"]: [part["error_code"] for part in one["topics"][0]["partitions"]]
             for one in told}  # fmt: skip
    assert codes == {7: [UNKNOWN_PARTITION] * 10_000 + [TIMED_OUT], -1: [-1], 8: [-1]}
