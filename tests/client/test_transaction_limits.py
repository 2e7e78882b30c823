"""max.block.ms bounds the methods of transactions; what is in doubt then can be called again."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest

import kbroker.client.transactions as room
from kbroker.client.admin_client import Admin
from kbroker.client.async_producer import AsyncProducer
from kbroker.client.errors import KafkaError, NotCoordinatorError, TransactionTimeoutError
from kbroker.client.producer import Producer
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from tests.client.between import Between, silent
from tests.client.transacting import producer_of, values_of
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

BLOCK_MS = 1_500
LONG_S = 8.0  # below the limits of a request, a call and connecting, which must not end it

BLOCKING: dict[str, Callable[[Producer, str], None]] = {
    "init": lambda producer, topic: producer.init_transactions(),
    "offsets": lambda producer, topic: producer.send_offsets_to_transaction({(topic, 0): 1}, "g"),
    "commit": lambda producer, topic: producer.commit(),
    "abort": lambda producer, topic: producer.abort(),
}


@contextmanager
def blocked(why: str = r"not done within 1\.5 s") -> Iterator[None]:
    """For as long as max.block.ms says."""
    began = time.monotonic()
    with pytest.raises(TransactionTimeoutError, match=why):
        yield
    assert time.monotonic() - began < LONG_S


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("name", BLOCKING)
def test_a_silent_coordinator_is_waited_for_until_max_block_ms(
    start_kbroker: Callable[..., BrokerProcess], topic: str, name: str
) -> None:
    """What was not known is known when it is called again: a commit has not been lost."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    with producer_of(broker, topic, max_block_ms=BLOCK_MS) as producer:
        if name != "init":
            producer.begin()
            producer.send(topic, b"v").result(60)
        with silent(broker), blocked():
            BLOCKING[name](producer, topic)
        if name == "commit":
            with pytest.raises(KafkaError, match="call commit"):
                producer.begin()
            producer.commit(60)
            assert values_of(broker, topic, "read_committed", 1) == {b"v": 1}
        elif name != "init":
            producer.abort(60)
            assert not values_of(broker, topic, "read_committed", 1)
        producer.init_transactions(60)


# What is on its way is the sender's alone: the wait for it is what the limit ends.
UNDELIVERED = r"records are not delivered after 1\.[45]\d* s"


def send_in_vain(producer: Producer, topic: str) -> None:
    """A record on its way to a broker that is silent; its partition is in the transaction."""
    before = producer.metrics()["batch-total"]
    producer.send(topic, b"late", partition=0)
    wait_for("it is on its way", lambda: producer.metrics()["batch-total"] > before, 30)


@pytest.mark.usefixtures("protocol")
@pytest.mark.parametrize("name", ["commit", "abort"])
def test_records_that_are_not_delivered_are_waited_for_until_max_block_ms(
    start_kbroker: Callable[..., BrokerProcess], topic: str, name: str
) -> None:
    """It is no more and no less in doubt than where the coordinator does not answer."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    with producer_of(broker, topic, max_block_ms=BLOCK_MS) as producer:
        producer.begin()
        producer.send(topic, b"v").result(60)
        with silent(broker):
            send_in_vain(producer, topic)
            with blocked(UNDELIVERED):
                BLOCKING[name](producer, topic)
        with pytest.raises(KafkaError, match=f"call {name}"):
            producer.begin()
        (producer.commit if name == "commit" else producer.abort)(60)
        with producer.transaction():
            producer.send(topic, b"next")
    kept = {b"next": 1} | ({b"v": 1, b"late": 1} if name == "commit" else {})
    assert values_of(broker, topic, "read_committed", 1) == kept


@pytest.mark.usefixtures("protocol")
def test_with_aborts_what_is_not_committed_within_max_block_ms(
    start_kbroker: Callable[..., BrokerProcess], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The broker speaks again before the abort: the next transaction begins."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    with producer_of(broker, topic, max_block_ms=BLOCK_MS) as producer, ExitStack() as silence:
        speak_before_abort(producer, silence, monkeypatch)
        with blocked(UNDELIVERED), producer.transaction():
            producer.send(topic, b"v").result(60)
            silence.enter_context(silent(broker))
            send_in_vain(producer, topic)
        with producer.transaction():
            producer.send(topic, b"next")
    assert values_of(broker, topic, "read_committed", 1) == {b"next": 1}


def speak_before_abort(
    producer: Producer, silence: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The silence ends as soon as the producer aborts."""
    abort = producer.abort

    def speaking(timeout: float | None = None) -> None:
        silence.close()
        abort(60 if timeout is None else timeout)

    monkeypatch.setattr(producer, "abort", speaking)


@pytest.mark.usefixtures("protocol")
def test_async_with_aborts_what_is_not_committed_within_max_block_ms(
    start_kbroker: Callable[..., BrokerProcess], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)

    async def go() -> None:
        async with AsyncProducer(
            bootstrap_servers=broker.bootstrap, transactional_id=topic, linger_ms=0,
            max_block_ms=BLOCK_MS,
        ) as producer:  # fmt: skip
            await producer.init_transactions(60)
            inner = producer._producer
            with ExitStack() as silence, blocked(UNDELIVERED):
                speak_before_abort(inner, silence, monkeypatch)
                async with producer.transaction():
                    await producer.send_and_wait(topic, b"v")
                    silence.enter_context(silent(broker))
                    send_in_vain(inner, topic)
            async with producer.transaction():
                await producer.send(topic, b"next")

    asyncio.run(go())
    assert values_of(broker, topic, "read_committed", 1) == {b"next": 1}


def test_a_broker_that_says_nothing_to_who_connects_is_waited_for_until_max_block_ms(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    """The limit for connecting is ten seconds, and grows with each attempt."""
    broker = start_kbroker()
    settings = {"bootstrap_servers": broker.bootstrap, "transactional_id": topic,
                "max_block_ms": BLOCK_MS}  # fmt: skip
    with Producer(settings) as producer:
        with silent(broker):
            for _ in range(2):
                with blocked():
                    producer.init_transactions()
        producer.init_transactions(60)


def test_a_coordinator_that_is_nowhere_is_looked_for_until_max_block_ms(
    kbroker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, topic: str
) -> None:
    """It answers NOT_COORDINATOR again and again; a timeout that is given holds instead."""

    def nowhere(*_: object) -> dict[str, int]:
        raise NotCoordinatorError(ErrorCode.NOT_COORDINATOR, "it is")

    monkeypatch.setattr(room, "find_coordinators", nowhere)
    settings = {"bootstrap_servers": kbroker.bootstrap, "transactional_id": topic,
                "max_block_ms": BLOCK_MS}  # fmt: skip
    with Producer(settings) as producer:
        with blocked():
            producer.init_transactions()
        with pytest.raises(TimeoutError, match=r"within 0\.3 s"):
            producer.init_transactions(0.3)

    async def go() -> None:
        async with AsyncProducer(settings) as producer:
            with blocked():
                await producer.init_transactions()

    asyncio.run(go())


# ---- answers that do not come


@pytest.mark.usefixtures("version_1")
def test_a_new_epoch_that_was_not_told_is_asked_for_again(
    between: Callable[..., Between], topic: str
) -> None:
    """A record that was given up leaves a gap in the sequences: nothing goes on in that epoch."""
    way = between(ApiKey.INIT_PRODUCER_ID)
    wire.create_topic(way.broker.port, topic, 1)
    with producer_of(way.broker, topic, max_block_ms=BLOCK_MS) as producer:
        first = epoch_of(producer)
        producer.begin()
        producer.send(topic, b"v").result(60)
        with silent(way.broker):
            send_in_vain(producer, topic)
            producer.purge()
        way.held = True
        with blocked():
            producer.abort()
        with pytest.raises(KafkaError, match="call abort"):
            producer.begin()
        way.held = False
        producer.abort(60)
        assert epoch_of(producer) > first
        with producer.transaction():
            producer.send(topic, b"next")
    assert values_of(way.broker, topic, "read_committed", 1) == {b"next": 1}


@pytest.mark.usefixtures("version_1")
def test_what_is_committed_is_not_aborted_for_want_of_an_epoch(
    between: Callable[..., Between], topic: str
) -> None:
    way = between(ApiKey.INIT_PRODUCER_ID)
    wire.create_topic(way.broker.port, topic, 1)
    with producer_of(way.broker, topic, max_block_ms=BLOCK_MS) as producer:
        first = epoch_of(producer)
        producer.begin()
        producer.send(topic, b"v").result(60)
        assert producer._transactions is not None
        producer._transactions._unsure = True
        way.held = True
        with blocked():
            producer.commit()
        for call in (producer.abort, producer.begin):
            with pytest.raises(KafkaError, match="is committed"):
                call()
        way.held = False
        producer.commit(60)
        assert epoch_of(producer) > first
    assert values_of(way.broker, topic, "read_committed", 1) == {b"v": 1}


# What begins a transaction in the older protocol, and how the producer is brought to ask for it.
BEGINNING = {
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda producer, topic: producer.send(topic, b"v", partition=0),
    ApiKey.ADD_OFFSETS_TO_TXN: BLOCKING["offsets"],
}


def ask_in_vain(producer: Producer, topic: str, api: ApiKey) -> None:
    producer.begin()
    if api == ApiKey.ADD_OFFSETS_TO_TXN:
        with blocked():
            BEGINNING[api](producer, topic)
    else:
        BEGINNING[api](producer, topic)


@pytest.mark.usefixtures("version_1")
@pytest.mark.parametrize("api", BEGINNING)
def test_what_began_without_our_hearing_of_it_is_aborted(
    between: Callable[..., Between], topic: str, api: ApiKey
) -> None:
    way = between(api)
    wire.create_topic(way.broker.port, topic, 1)
    with (
        producer_of(way.broker, topic, max_block_ms=BLOCK_MS) as producer,
        Admin(bootstrap_servers=way.broker.bootstrap) as admin,
    ):

        def state() -> str:
            return admin.describe_transactions([topic])[topic].state

        way.held = True
        ask_in_vain(producer, topic, api)
        wait_for("the coordinator has begun it", lambda: state() == "Ongoing", 30)
        producer.abort(60)
        assert state() != "Ongoing"


@pytest.mark.usefixtures("version_1")
@pytest.mark.parametrize("api", BEGINNING)
def test_what_never_began_is_aborted_as_well(
    between: Callable[..., Between], topic: str, api: ApiKey
) -> None:
    """The coordinator knows of no transaction, and the next one is well."""
    way = between(api)
    wire.create_topic(way.broker.port, topic, 1)
    with producer_of(way.broker, topic, max_block_ms=BLOCK_MS) as producer:
        with producer.transaction():
            producer.send(topic, b"kept", partition=0).result(60)
        way.cut = True
        ask_in_vain(producer, topic, api)
        wait_for("it is asked", lambda: way.cuts > 0, 30)
        producer.abort(60)
        way.cut = False
        producer.begin()
        producer.send(topic, b"kept", partition=0).result(60)
        producer.commit(60)
    assert values_of(way.broker, topic, "read_committed", 1) == {b"kept": 2}


def epoch_of(producer: Producer) -> int:
    assert producer._transactions is not None
    return producer._transactions._producer[1]
