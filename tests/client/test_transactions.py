"""The producer's transactions, in both protocols: whole or not at all, offsets included."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable

import pytest

from kbroker.client.admin_client import Admin
from kbroker.client.admin_transactions import OpenTransaction
from kbroker.client.consumer import Consumer
from kbroker.client.errors import (
    BrokerError,
    InvalidProducerEpochError,
    KafkaError,
    ProducerFencedError,
)
from kbroker.client.partitions import OffsetAndMetadata
from kbroker.client.producer import Producer
from kbroker.errors import ErrorCode
from tests.client.preparing import VALUES
from tests.client.transacting import producer_of, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

FENCED = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH)


@pytest.mark.usefixtures("protocol")
def test_commit_and_abort(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    kept: Counter = Counter()
    dropped: Counter = Counter()
    with producer_of(target, topic) as producer:
        for number in range(9):
            values = [b"%d-%d" % (number, n) for n in range(20)]
            producer.begin()
            for n, value in enumerate(values):
                producer.send(topic, value, partition=n % 2)
            if number % 3 == 1:
                producer.flush(30)
                producer.abort(60)
                dropped.update(values)
            else:
                producer.commit(60)
                kept.update(values)
    assert values_of(target, topic, "read_committed") == kept
    assert values_of(target, topic, "read_uncommitted") == kept + dropped


@pytest.mark.usefixtures("protocol")
def test_with(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"dropped", partition=0).result(30)
            raise ZeroDivisionError
        with producer.transaction():
            pass
        with producer.transaction():
            producer.send(topic, b"kept", partition=1)
    assert values_of(target, topic, "read_committed") == Counter({b"kept": 2})


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("flushed", [False, True], ids=["", "flushed"])
def test_who_comes_second_fences(target: BrokerProcess, topic: str, flushed: bool) -> None:
    """The partition tells of an old epoch, the coordinator of why."""
    wire.create_topic(target.port, topic, 2)
    zombie = producer_of(target, topic)
    zombie.begin()
    zombie.send(topic, b"lost", partition=0).result(30)
    with producer_of(target, topic) as heir, heir.transaction():
        heir.send(topic, b"kept", partition=0)
    zombie.send(topic, b"late", partition=0)
    if flushed:
        zombie.flush(30)
    with pytest.raises(InvalidProducerEpochError):
        zombie.commit(60)
    with pytest.raises(ProducerFencedError):
        zombie.abort(60)
    with pytest.raises(ProducerFencedError):
        zombie.send(topic, b"later", partition=0)
    zombie.close(0)
    assert values_of(target, topic, "read_committed") == Counter({b"kept": 1})


@pytest.mark.usefixtures("protocol")
def test_the_coordinator_tells_at_once_that_a_producer_is_fenced(
    target: BrokerProcess, topic: str
) -> None:
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as zombie:
        zombie.begin()
        zombie.send(topic, b"lost", partition=0).result(30)
        producer_of(target, topic).close()
        with pytest.raises(ProducerFencedError):
            zombie.commit(60)


def test_outside_nothing_is_taken(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 2)
    with Producer(bootstrap_servers=kbroker.bootstrap, transactional_id=topic) as producer:
        with pytest.raises(KafkaError, match="init_transactions"):
            producer.send(topic, b"x")
        with pytest.raises(KafkaError, match="init_transactions"):
            producer.begin()
        producer.init_transactions(60)
        for call in (producer.commit, producer.abort, lambda: producer.send(topic, b"x")):
            with pytest.raises(KafkaError, match="begin"):
                call()
        producer.begin()
        with pytest.raises(KafkaError, match="is open"):
            producer.begin()
        producer.send(topic, b"x", partition=0)
        producer.commit(60)
        with pytest.raises(KafkaError, match="begin"):
            producer.send(topic, b"x")
    with Producer(bootstrap_servers=kbroker.bootstrap) as plain, pytest.raises(KafkaError):
        plain.begin()


@pytest.mark.usefixtures("protocol")
def test_offsets_go_along(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    part = (topic, 1)
    with (
        producer_of(target, topic) as producer,
        Admin(bootstrap_servers=target.bootstrap) as admin,
    ):
        for offset, commit in ((3, True), (5, False), (9, True)):
            producer.begin()
            producer.send(topic, b"x", partition=0)
            given = OffsetAndMetadata(offset, "m") if commit else offset
            producer.send_offsets_to_transaction({part: given}, topic, 60)
            (producer.commit if commit else producer.abort)(60)
        found = admin.describe_transactions([topic])[topic]
    assert found.state in ("PrepareCommit", "CompleteCommit")
    with Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, isolation_level="read_committed"
    ) as consumer:
        assert consumer.committed([part])[part] == OffsetAndMetadata(9, "m")


@pytest.mark.usefixtures("protocol")
def test_consume_transform_produce(target: BrokerProcess, topic: str) -> None:
    """Each record once, though every third turn is given up."""
    source, sink = f"{topic}-in", f"{topic}-out"
    wire.create_topic(target.port, source, 2)
    wire.create_topic(target.port, sink, 2)
    values = Counter(b"%d" % n for n in range(400))
    with Producer(bootstrap_servers=target.bootstrap) as plain:
        for value in values:
            plain.send(source, value)
    copied, turn = 0, 0
    with (
        producer_of(target, topic) as producer,
        Consumer(
            bootstrap_servers=target.bootstrap, group_id=topic, enable_auto_commit=False,
            auto_offset_reset="earliest", isolation_level="read_committed", max_poll_records=50,
        ) as consumer,
    ):  # fmt: skip
        consumer.subscribe([source])
        while copied < len(values):
            records = list(consumer.poll(1.0))
            if not records:
                continue
            turn += 1
            producer.begin()
            for record in records:
                producer.send(sink, record.value)
            positions = {part: consumer.position(part) for part in consumer.assignment()}
            producer.send_offsets_to_transaction(positions, consumer.group_metadata(), 60)
            if turn % 3:
                producer.commit(60)
                copied += len(records)
                continue
            producer.abort(60)
            for part, told in consumer.committed(consumer.assignment()).items():
                consumer.seek(part, told.offset if told else 0)
    assert values_of(target, sink, "read_committed") == values


@pytest.mark.usefixtures("protocol")
def test_a_record_that_is_refused_fails_the_transaction(kbroker: BrokerProcess, topic: str) -> None:
    """Too large for the topic: commit refuses, abort goes on, the next transaction is well."""
    wire.create_topic(kbroker.port, topic, 2, {"max.message.bytes": "1000"})
    with producer_of(kbroker, topic) as producer:
        producer.begin()
        producer.send(topic, b"kept?", partition=0)
        producer.send(topic, b"x" * 5000, partition=1)
        with pytest.raises(KafkaError):
            producer.commit(60)
        with pytest.raises(KafkaError, match="abort"):
            producer.send(topic, b"more")
        producer.abort(60)
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
            producer.send(topic, b"kept", partition=1)
    assert values_of(kbroker, topic, "read_committed") == Counter({b"kept": 2})


def test_the_level_of_the_feature_changes(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """transaction.version goes down and up while transactions are open: who has begun goes on, who
    comes next speaks what holds then, and takes over what another protocol has left open."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    kept: Counter = Counter()
    lives: list[Producer] = []
    with Admin(bootstrap_servers=broker.bootstrap) as admin:
        for number, level in enumerate((1, 0, 1, 2)):
            producer = producer_of(broker, f"{topic}-own-{number}")
            heir = producer_of(broker, topic)
            lives += [producer, heir]
            for one, kind in ((producer, "kept"), (heir, "left open")):
                one.begin()
                one.send(topic, value=f"{kind} {number}".encode()).result(30)
            raised = number > 1
            way = "upgrade" if raised else "safe_downgrade"
            admin.update_features({"transaction.version": level}, upgrade=way)
            producer.send(topic, value=f"kept {number}".encode()).result(30)
            producer.commit()
            kept[f"kept {number}".encode()] += 2
        last = producer_of(broker, topic)
        with last.transaction():
            last.send(topic, value=b"last")
        kept[b"last"] += 1
        broker.kill()
        broker.start()
        assert values_of(broker, topic, "read_committed", 1) == kept
        for one in (*lives, last):
            one.close(0)


# ---- left open


def prepared(broker: BrokerProcess, topic: str, protocol: int) -> OpenTransaction:
    """What a writer has left open, who is dead by now."""
    wire.create_topic(broker.port, topic, 2)
    command = [sys.executable, "-m", "tests.client.preparing", broker.bootstrap, topic]
    with subprocess.Popen([*command, str(protocol)], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        told = writer.stdout.readline()
        writer.kill()
    left = OpenTransaction(**json.loads(told))
    assert (left.transactional_id, left.by_epoch) == (topic, protocol == 2)
    assert values_of(broker, topic, "read_committed") == Counter()
    assert values_of(broker, topic, "read_uncommitted") == Counter(VALUES)
    return left


def test_what_was_left_open_is_committed_by_another(
    target: BrokerProcess, topic: str, protocol: int
) -> None:
    """And once more, for whoever was not told; then the id goes on."""
    left = prepared(target, topic, protocol)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.end_transaction(left, commit=True)
        admin.end_transaction(left, commit=True)
        with pytest.raises(KafkaError):
            admin.end_transaction(left, commit=False)
    with producer_of(target, topic) as heir, heir.transaction():
        heir.send(topic, b"next", partition=0)
    kept = Counter([*VALUES, b"next"])
    wait_for("both", lambda: values_of(target, topic, "read_committed") == kept, 60)


def test_what_was_left_open_is_aborted_by_another(
    target: BrokerProcess, topic: str, protocol: int
) -> None:
    left = prepared(target, topic, protocol)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.end_transaction(left, commit=False)
        admin.end_transaction(left, commit=False)
        with pytest.raises(KafkaError):
            admin.end_transaction(left, commit=True)
    with producer_of(target, topic) as heir, heir.transaction():
        heir.send(topic, b"next", partition=0)
    kept = Counter([b"next"])
    wait_for("the next", lambda: values_of(target, topic, "read_committed") == kept, 60)
    assert values_of(target, topic, "read_uncommitted") == kept + Counter(VALUES)


def test_what_was_left_open_was_fenced_meanwhile(
    target: BrokerProcess, topic: str, protocol: int
) -> None:
    """Somebody took the transactional id: whoever comes to end what was left is told, and ends
    nothing, neither that nor what the heir has open."""
    left = prepared(target, topic, protocol)
    with (
        producer_of(target, topic) as heir,
        Admin(bootstrap_servers=target.bootstrap) as admin,
        heir.transaction(),
    ):
        heir.send(topic, b"next", partition=0).result(30)
        for commit in (True, False):
            with pytest.raises(BrokerError) as caught:
                admin.end_transaction(left, commit=commit)
            assert caught.value.code in FENCED
    kept = Counter([b"next"])
    wait_for("the next", lambda: values_of(target, topic, "read_committed") == kept, 60)


@pytest.mark.usefixtures("protocol")
def test_nothing_was_left_open(kbroker: BrokerProcess, topic: str) -> None:
    """A transaction without records leaves nothing to end; its producer is done all the same."""
    with producer_of(kbroker, topic) as producer:
        producer.begin()
        assert producer.leave_open(30) is None
        with pytest.raises(KafkaError, match="left open"):
            producer.begin()
