"""Exceptions of signal handlers at points of a producer's and an admin's calls: both go on."""

from __future__ import annotations

import contextlib

import pytest

from kbroker.client import Admin, Producer
from kbroker.client.errors import ClosedError
from kbroker.client.transactions import State
from tests.client.reading import read_all
from tests.support import wire
from tests.support.interruptions import interrupted
from tests.support.processes import BrokerProcess

SLOW_S = 30.0


def send_some(producer: Producer, topic: str) -> None:
    deliveries = [producer.send(topic, b"some") for _ in range(3)]
    producer.flush(SLOW_S)
    for delivery in deliveries:
        delivery.result(SLOW_S)
    producer.close()


def test_interrupted_producer_sends_on(target: BrokerProcess, topic: str) -> None:
    """It may be closed, where the exception came as it was being closed, and can be then."""
    wire.create_topic(target.port, topic, 1)
    for at in range(1, 600, 61):
        producer = Producer(
            bootstrap_servers=target.bootstrap, linger_ms=0, key_serializer=bytes,
            partitioner_class=lambda *_: 0,
        )  # fmt: skip
        with interrupted(at):
            send_some(producer, topic)
        with contextlib.suppress(ClosedError):
            assert producer.send(topic, b"last").result(SLOW_S).offset >= 0
        producer.close(SLOW_S)
        assert not producer._thread.is_alive()


def run_transactions(producer: Producer, topic: str) -> None:
    producer.init_transactions()
    with producer.transaction():
        producer.send(topic, b"some")
    producer.begin()
    producer.send(topic, b"aborted")
    producer.abort()
    producer.begin()
    producer.send(topic, b"some")
    producer.commit()


def end_transaction(producer: Producer) -> None:
    """What an application does that goes on after an exception: as the state's text says."""
    assert producer._transactions is not None
    state = producer._transactions.state
    if state is State.NEW:
        producer.init_transactions()
    elif state in (State.ENDING, State.COMMITTED):
        producer.commit()
    elif producer._transactions.is_open:
        producer.abort()


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("first", [1_001, 1_203])
def test_interrupted_transaction_can_be_ended(
    target: BrokerProcess, topic: str, first: int
) -> None:
    """The end of a transaction is asked for once its answer has come: its epoch is over then."""
    wire.create_topic(target.port, topic, 1)
    for at in range(first, 1_600, 43):
        with Producer(
            bootstrap_servers=target.bootstrap, transactional_id=f"{topic}-{at}", linger_ms=0,
            retry_backoff_ms=20,
        ) as producer:  # fmt: skip
            with interrupted(at) as interruption:
                run_transactions(producer, topic)
            end_transaction(producer)
            with producer.transaction():
                producer.send(topic, b"last")
            if not interruption.happened:
                break


def test_interrupted_admin_gets_its_own_answers(target: BrokerProcess, topic: str) -> None:
    """The answer to a call that an exception ended is not taken for the next call's."""
    wire.create_topic(target.port, topic, 1)
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        for at in range(1, 400, 37):
            with interrupted(at):
                admin.describe_cluster()
                admin.list_groups()
            assert topic in admin.describe_topics([topic])
            assert admin.describe_cluster().cluster_id
        admin.close(SLOW_S)


def test_keyboard_interrupt_delivers(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    settings = {"bootstrap_servers": target.bootstrap, "linger_ms": 60_000}
    with pytest.raises(KeyboardInterrupt), Producer(settings) as producer:
        for _ in range(100):
            producer.send(topic, b"some")
        raise KeyboardInterrupt
    assert len(read_all(target.bootstrap, topic, 100)) == 100
