"""Consumer beside a broker: positions, polling in its three ways, errors, ends."""

from __future__ import annotations

import gc
import os
import pickle
import signal
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest

from kbroker.client.consumer import Consumer
from kbroker.client.errors import (
    BrokerError,
    ClosedError,
    ConcurrentUseError,
    ConfigError,
    DeserializationError,
    ForkError,
    GroupAuthorizationFailedError,
    KafkaError,
    NoOffsetError,
    UnknownTopicOrPartitionError,
    WakeupError,
)
from kbroker.errors import ErrorCode
from kbroker.ext.client_record import Record
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

Read = Callable[..., Consumer]


def produce(port: int, topic: str, count: int, partition: int = 0, **settings: Any) -> None:
    """Values 0, 1, ... as text."""
    told = {"bootstrap.servers": f"127.0.0.1:{port}", "linger.ms": 20, **settings}
    producer = confluent_kafka.Producer(told)
    for i in range(count):
        producer.produce(
            topic, b"%d" % i, b"k%d" % i, partition, timestamp=1000 + i, headers=[("h", b"%d" % i)]
        )
    assert producer.flush(30) == 0


@pytest.fixture
def read(target: BrokerProcess) -> Iterator[Read]:
    made: list[Consumer] = []

    def make(**settings: Any) -> Consumer:
        given = {"auto_offset_reset": "earliest", "retry_backoff_ms": 20, **settings}
        made.append(Consumer(bootstrap_servers=target.bootstrap, **given))
        return made[-1]

    yield make
    for consumer in made:
        consumer.close()


def taken(consumer: Consumer, count: int, **how: Any) -> list[Record]:
    found: list[Record] = []
    deadline = time.monotonic() + 60
    while len(found) < count:
        assert time.monotonic() < deadline, f"{len(found)} of {count}"
        found += consumer.poll(1.0, **how)
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_three_ways_of_reading_give_the_same(
    read: Read, target: BrokerProcess, topic: str, codec: str
) -> None:
    wire.create_topic(target.port, topic, 3)
    for partition in range(3):
        produce(target.port, topic, 700, partition, **{"compression.type": codec})
    consumer = read()
    consumer.assign([(topic, index) for index in range(3)])
    polled = sorted(
        (r.partition, r.offset, r.timestamp, r.key, r.value) for r in taken(consumer, 2100)
    )
    assert [row[1:] for row in polled[:700]] == [
        (i, 1000 + i, b"k%d" % i, b"%d" % i) for i in range(700)
    ]
    assert polled[0][0] == 0
    assert polled[-1][0] == 2
    consumer.seek_to_beginning()
    iterated = []
    for record in consumer:
        iterated.append(
            (record.partition, record.offset, record.timestamp, record.key, record.value)
        )
        assert record.headers == (("h", record.value),)
        assert record.topic == topic
        if len(iterated) == 2100:
            break
    assert sorted(iterated) == polled
    consumer.seek_to_beginning([(topic, index) for index in range(3)])
    rows: list[tuple[Any, ...]] = []
    while len(rows) < 2100:
        batch = consumer.poll_batch(5.0, max_records=1000)
        assert len(batch) <= 1000
        rows += zip(
            batch.partitions, batch.offsets, batch.timestamps, batch.keys, batch.values, strict=True
        )
    assert sorted(rows) == polled
    assert [consumer.position((topic, index)) for index in range(3)] == [700] * 3
    assert consumer.lag((topic, 0)) == 0


def test_positions(read: Read, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    produce(target.port, topic, 100)
    consumer = read(max_poll_records=7)
    where = (topic, 0)
    consumer.assign([where])
    assert consumer.position(where) == 0
    assert len(taken(consumer, 7)) == 7
    assert consumer.position(where) == 7
    consumer.seek(where, 50)
    assert consumer.position(where) == 50
    assert taken(consumer, 1)[0].offset == 50
    consumer.seek_to_timestamp(1030)
    assert consumer.position(where) == 30
    assert taken(consumer, 1)[0].value == b"30"
    consumer.seek_to_end()
    assert consumer.position(where) == 100
    assert consumer.poll(0.05) == []
    assert consumer.beginning_offsets([where, (topic, 1)]) == {where: 0, (topic, 1): 0}
    assert consumer.end_offsets([where]) == {where: 100}
    found = consumer.offsets_for_times({where: 1099, (topic, 1): 5})
    assert found == {where: (99, 1099), (topic, 1): None}
    assert {info.index for info in consumer.partitions_for(topic)} == {0, 1}
    assert topic in consumer.list_topics()
    with pytest.raises(KeyError, match="not assigned"):
        consumer.seek((topic, 1), 0)
    with pytest.raises(ValueError, match="begin at 0"):
        consumer.seek(where, -1)


def test_iterating_moves_the_position_by_what_was_given_out(
    read: Read, target: BrokerProcess, topic: str
) -> None:
    produce(target.port, topic, 20)
    consumer = read()
    consumer.assign([(topic, 0)])
    for record in consumer:
        assert consumer.position((topic, 0)) == record.offset + 1
        if record.offset == 10:
            break
    assert [record.offset for record in taken(consumer, 9)] == list(range(11, 20))


def test_paused_partitions_wait(read: Read, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    produce(target.port, topic, 10, 0)
    produce(target.port, topic, 10, 1)
    consumer = read()
    consumer.assign([(topic, 0), (topic, 1)])
    consumer.pause([(topic, 0)])
    assert consumer.paused() == {(topic, 0)}
    assert {record.partition for record in taken(consumer, 10)} == {1}
    assert consumer.poll(0.05) == []
    consumer.resume([(topic, 0)])
    assert {record.partition for record in taken(consumer, 10)} == {0}


def test_what_is_paused_holds_up_nobody(read: Read, target: BrokerProcess, topic: str) -> None:
    """Not even where all that may be queued is of paused partitions."""
    wire.create_topic(target.port, topic, 3)
    for partition in range(3):
        produce(target.port, topic, 100, partition)
    consumer = read(queued_max_messages_kbytes=1)
    consumer.assign([(topic, partition) for partition in range(3)])
    first = taken(consumer, 1, max_records=1)[0].partition
    consumer.pause([(topic, partition) for partition in range(3) if partition != first])
    assert len(taken(consumer, 99)) == 99
    produce(target.port, topic, 10, first)
    assert {record.partition for record in taken(consumer, 10)} == {first}


def test_where_nothing_was_committed(read: Read, target: BrokerProcess, topic: str) -> None:
    produce(target.port, topic, 10)
    consumer = read(auto_offset_reset="none")
    consumer.assign([(topic, 0)])
    with pytest.raises(NoOffsetError, match=f"{topic}-0"):
        consumer.poll(60)
    consumer.seek((topic, 0), 3)
    assert taken(consumer, 7)[0].offset == 3
    consumer.seek((topic, 0), 1000)
    with pytest.raises(NoOffsetError, match="no offset 1000"):
        consumer.poll(60)
    late = read(auto_offset_reset="latest")
    late.assign([(topic, 0)])
    assert late.position((topic, 0)) == 10
    late.seek((topic, 0), 1000)
    wait_for("the end is found", lambda: not late.poll(0.1) and late.position((topic, 0)) == 10, 60)
    ago = read(auto_offset_reset="by_duration:PT1H")
    ago.assign([(topic, 0)])
    assert ago.position((topic, 0)) == 10, "the records are of 1970"


def test_only_committed_transactions(read: Read, target: BrokerProcess, topic: str) -> None:
    told = {"bootstrap.servers": target.bootstrap, "transactional.id": topic}
    producer = confluent_kafka.Producer(told)
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for _ in range(10):
            producer.produce(topic, b"%d" % number, partition=0)
        producer.flush()
        end = producer.abort_transaction if number % 2 else producer.commit_transaction
        end()
    consumer = read(isolation_level="read_committed")
    consumer.assign([(topic, 0)])
    assert {record.value for record in taken(consumer, 30)} == {b"0", b"2", b"4"}
    assert consumer.poll(0.2) == []
    assert consumer.lag((topic, 0)) == 0
    everything = read()
    everything.assign([(topic, 0)])
    assert len(taken(everything, 60)) == 60
    for nothing in (consumer.poll, consumer.poll_batch):
        consumer.seek((topic, 0), 65)  # the end of the last transaction, an aborted one
        begun = time.monotonic()
        assert len(nothing(1.0)) == 0
        assert time.monotonic() - begun >= 1.0, "a batch with nothing to give ends no wait"


def test_deserializers(read: Read, target: BrokerProcess, topic: str) -> None:
    produce(target.port, topic, 10)
    consumer = read(key_deserializer="str", value_deserializer=lambda topic, data: (topic, data))
    consumer.assign([(topic, 0)])
    record = taken(consumer, 10)[3]
    assert (record.key, record.key_size, record.value_size) == ("k3", 2, 1)
    assert taken_again(consumer, topic).value == (topic, b"0")

    for one in (bytes.decode, lambda data, how="ascii": data.decode(how), str):
        decoding = read(value_deserializer=one)
        decoding.assign([(topic, 0)])
        assert taken(decoding, 10)[3].value in ("3", "b'3'")

    def choosy(data: bytes) -> int:
        if data == b"4":
            raise ValueError("no four")
        return int(data)

    picky = read(value_deserializer=choosy)
    picky.assign([(topic, 0)])
    assert [record.value for record in taken(picky, 4)] == [0, 1, 2, 3]
    for _ in range(2):
        with pytest.raises(DeserializationError, match=f"{topic}-0 at.*4.*no four.*to 5") as told:
            picky.poll(60)
    for error in (told.value, pickle.loads(pickle.dumps(told.value))):
        assert (error.topic, error.partition, error.offset) == (topic, 0, 4)
        assert str(error) == str(told.value)
    picky.seek((told.value.topic, told.value.partition), told.value.offset + 1)
    assert taken(picky, 5)[0].value == 5
    with pytest.raises(ConfigError, match=r"key\.deserializer"):
        read(key_deserializer="strr")
    for limit in (0, -1):
        with pytest.raises(ValueError, match=f"max_records: {limit}"):
            picky.poll(5, limit)
        with pytest.raises(ValueError, match=f"max_records: {limit}"):
            picky.poll_batch(5, limit)


def test_what_is_given_out_is_not_taken_away_meanwhile(
    read: Read, target: BrokerProcess, topic: str
) -> None:
    """Not even by the deserializer that is at it, nor while iterating, which has no turn."""
    produce(target.port, topic, 10)

    def meddle(data: bytes) -> bytes:
        for call in (lambda: seeker.seek((topic, 0), 0), lambda: seeker.poll(0), seeker.close):
            with pytest.raises(ConcurrentUseError, match="by way of a deserializer"):
                call()
        return data

    seeker = read(value_deserializer=meddle)
    seeker.assign([(topic, 0)])
    assert len(taken(seeker, 10)) == 10
    seeker.seek((topic, 0), 0)
    assert [next(iter(seeker)).offset for _ in range(3)] == [0, 1, 2]
    seeker.seek((topic, 0), 5)
    assert taken(seeker, 1)[0].offset == 5


def taken_again(consumer: Consumer, topic: str) -> Record:
    consumer.seek((topic, 0), 0)
    return taken(consumer, 1)[0]


def test_interceptors_see_what_is_given_out(
    read: Read, target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Onlooker:
        seen = 0

        def on_consume(self, records: list[Record]) -> list[Record]:
            self.seen += len(records)
            return [record for record in records if record.offset % 2]

    class Faulty:
        def on_consume(self, records: list[Record]) -> list[Record]:
            raise RuntimeError("not today")

    onlooker = Onlooker()
    produce(target.port, topic, 10)
    consumer = read(interceptor_classes=[onlooker, Faulty()])
    consumer.assign([(topic, 0)])
    assert [record.offset for record in taken(consumer, 5)] == [1, 3, 5, 7, 9]
    assert onlooker.seen == 10
    caplog.clear()  # the traceback that was logged holds records


def test_committed_offsets_that_cannot_be_had(
    read: Read, target: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each poll tells, and asks once."""
    produce(target.port, topic, 10)
    consumer = read(group_id=topic)
    consumer.subscribe([topic])
    asked = []

    def refuse(partitions: Any, done: Callable[[KafkaError], None]) -> None:
        asked.append(partitions)
        done(BrokerError(ErrorCode.GROUP_AUTHORIZATION_FAILED, "group"))

    monkeypatch.setattr(consumer._group, "fetch_committed", refuse)
    for _ in range(3):
        with pytest.raises(GroupAuthorizationFailedError):
            consumer.poll(60)
    assert len(asked) <= 6
    monkeypatch.undo()
    assert len(taken(consumer, 10)) == 10


def test_a_topic_that_is_not_there(read: Read) -> None:
    consumer = read(allow_auto_create_topics=False)
    consumer.assign([("no-such-topic", 0)])
    with pytest.raises(UnknownTopicOrPartitionError, match="no-such-topic"):
        consumer.poll(60)


def test_a_partition_that_is_not_there(read: Read, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    consumer = read()
    consumer.assign([(topic, 7)])
    with pytest.raises(KafkaError, match=f"{topic}-7"):
        consumer.poll(60)


def test_wakeup_from_another_thread(read: Read, topic: str, target: BrokerProcess) -> None:
    wire.create_topic(target.port, topic, 1)
    consumer = read()
    consumer.assign([(topic, 0)])
    consumer.position((topic, 0))
    timer = threading.Timer(0.2, consumer.wakeup)
    timer.start()
    began = time.monotonic()
    with pytest.raises(WakeupError):
        consumer.poll(60)
    assert time.monotonic() - began < 50
    timer.join()
    assert consumer.poll(0.01) == []


def test_one_thread_at_a_time(read: Read, topic: str, target: BrokerProcess) -> None:
    wire.create_topic(target.port, topic, 1)
    consumer = read()
    consumer.assign([(topic, 0)])
    told: list[object] = []

    def poll() -> None:
        while not told:
            try:
                told.append(consumer.poll(60))
            except ConcurrentUseError:  # it is the other's turn just now
                continue
            except WakeupError as error:
                told.append(error)

    thread = threading.Thread(target=poll)
    thread.start()
    deadline = time.monotonic() + 60
    with pytest.raises(ConcurrentUseError, match="another thread"):
        while time.monotonic() < deadline:
            consumer.poll(0)
    with pytest.raises(ConcurrentUseError):
        consumer.close()
    consumer.wakeup()
    thread.join()
    assert isinstance(told[-1], WakeupError)
    assert consumer.poll(0) == []


def test_signals_come_through(read: Read, topic: str, target: BrokerProcess) -> None:
    wire.create_topic(target.port, topic, 1)
    consumer = read()
    consumer.assign([(topic, 0)])
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        timer.start()
        consumer.poll(60)
    timer.join()
    assert consumer.poll(0) == []


def test_ends(target: BrokerProcess, topic: str) -> None:
    produce(target.port, topic, 10)
    with Consumer(bootstrap_servers=target.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([(topic, 0)])
        kept = taken(consumer, 10)
    consumer.close()
    with pytest.raises(ClosedError):
        consumer.poll(0)
    assert kept[9].value == b"9", "records outlive their consumer"
    # Dropped without close: nothing of it is left, and nothing holds it.
    dropped = Consumer(bootstrap_servers=target.bootstrap)
    dropped.assign([(topic, 0)])
    gone = weakref.ref(dropped)
    gc.disable()
    try:
        del dropped
        assert gone() is None, "a consumer is part of a reference cycle"
    finally:
        gc.enable()


def test_a_fork_is_told(read: Read, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    consumer = read(auto_offset_reset="earliest")
    child = os.fork()
    if child == 0:
        try:
            consumer.close()  # as the end of a `with` does it
            consumer.poll(0)
        except ForkError:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    consumer.assign([(topic, 0)])
    produce(target.port, topic, 1)
    assert consumer.poll(60), "the child has closed nothing of ours"


def test_a_small_queue_is_not_overrun(read: Read, target: BrokerProcess, topic: str) -> None:
    """Though each partition could have more, and a fetch of all of them a lot more."""
    wire.create_topic(target.port, topic, 8)
    for partition in range(8):
        produce(target.port, topic, 5000, partition, **{"batch.size": 4000})
    consumer = read(queued_max_messages_kbytes=64)
    consumer.assign([(topic, partition) for partition in range(8)])
    most = 0.0
    offsets: dict[int, list[int]] = {partition: [] for partition in range(8)}
    while sum(map(len, offsets.values())) < 40_000:
        for record in consumer.poll(5):
            offsets[record.partition].append(record.offset)
        most = max(most, consumer.metrics()["queued-bytes"])
    assert offsets == {partition: list(range(5000)) for partition in range(8)}
    assert 0 < most <= (64 << 10) + 5000, "a batch above what was asked for"


def test_reads_on_after_the_broker_was_killed(
    start_target: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_target()
    produce(broker.port, topic, 500)
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", max_poll_records=100
    ) as consumer:
        consumer.assign([(topic, 0)])
        values = [int(record.value) for record in taken(consumer, 200)]
        broker.kill()
        values += [int(record.value) for record in consumer.poll(0.2)]
        broker.start()
        values += [int(record.value) for record in taken(consumer, 500 - len(values))]
        produce(broker.port, topic, 10)
        values += [int(record.value) for record in taken(consumer, 10)]
    assert values == [*range(500), *range(10)]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_poll_joins_and_reads(
    read: Read, target: BrokerProcess, topic: str, protocol: str
) -> None:
    """What a join assigns is asked for its committed offset by the same poll: it once waited for
    the next automatic commit."""
    wire.create_topic(target.port, topic, 2)
    produce(target.port, topic, 5)
    consumer = read(group_id=topic, group_protocol=protocol, auto_commit_interval_ms=600_000)
    consumer.subscribe([topic])
    began = time.monotonic()
    assert consumer.poll(60.0)
    assert time.monotonic() - began < 30
