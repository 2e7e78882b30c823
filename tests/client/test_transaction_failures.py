"""What producers are told of transactions that were fenced, were too late, or lost a record."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

import pytest

from kbroker.client.errors import (
    InvalidProducerEpochError,
    KafkaError,
    MessageTooLargeError,
    ProducerFencedError,
)
from tests.client.transacting import (
    async_producer_of,
    not_aborted,
    producer_of,
    state_of,
    values_of,
)
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


@contextmanager
def fenced() -> Iterator[None]:
    """A partition tells of an old epoch, then the coordinator of why."""
    with pytest.raises(ProducerFencedError) as caught:
        yield
    assert isinstance(caught.value.__cause__, InvalidProducerEpochError)


def inherit(broker: BrokerProcess, name: str) -> None:
    """Another producer takes the transactional id."""
    producer_of(broker, name).close()


@pytest.fixture(params=[False, True], ids=["", "flushed"])
def flushed(request: pytest.FixtureRequest) -> bool:
    """Whether the records' fate is known before the transaction's end."""
    return bool(request.param)


@pytest.mark.usefixtures("protocol")
def test_with_tells_of_being_fenced(
    target: BrokerProcess, topic: str, flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as zombie:
        with fenced(), zombie.transaction():
            zombie.send(topic, b"lost", partition=0).result(30)
            inherit(target, topic)
            zombie.send(topic, b"late", partition=0)
            if flushed:
                zombie.flush(30)
        with pytest.raises(ProducerFencedError):
            zombie.begin()
    assert not not_aborted(caplog)


@pytest.mark.usefixtures("protocol")
def test_async_with_tells_of_being_fenced(
    target: BrokerProcess, topic: str, flushed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 2)

    async def work() -> None:
        async with async_producer_of(target, topic) as zombie:
            await zombie.init_transactions(60)
            with fenced():
                async with zombie.transaction():
                    await zombie.send_and_wait(topic, b"lost", partition=0)
                    inherit(target, topic)
                    await zombie.send(topic, b"late", partition=0)
                    if flushed:
                        await zombie.flush(30)

    asyncio.run(work())
    assert not not_aborted(caplog)


@pytest.mark.usefixtures("protocol")
def test_with_tells_of_being_fenced_where_a_record_was_refused(
    target: BrokerProcess, topic: str
) -> None:
    """By send(), whose own error tells of the epoch as its cause."""
    wire.create_topic(target.port, topic, 2)
    with (
        producer_of(target, topic) as zombie,
        pytest.raises(ProducerFencedError) as caught,
        zombie.transaction(),
    ):
        zombie.send(topic, b"lost", partition=0).result(30)
        inherit(target, topic)
        zombie.send(topic, b"late", partition=0)
        zombie.flush(30)
        zombie.send(topic, b"refused", partition=0)
    refused = caught.value.__cause__
    assert str(refused) == "the transaction has failed: it can only be aborted"
    assert refused is not None
    assert isinstance(refused.__cause__, InvalidProducerEpochError)


def test_with_tells_that_the_transaction_was_open_for_too_long(
    target: BrokerProcess, topic: str, protocol: int, flushed: bool
) -> None:
    """Version 1 fences who is late; in version 2 the abort has been done, and the next begins."""
    wire.create_topic(target.port, topic, 2)
    told: AbstractContextManager[object] = fenced()
    after: AbstractContextManager[object] = pytest.raises(ProducerFencedError)
    if protocol == 2:
        told, after = pytest.raises(InvalidProducerEpochError), nullcontext()
    with producer_of(target, topic, transaction_timeout_ms=1000) as producer:
        with told, producer.transaction():
            producer.send(topic, b"lost", partition=0).result(30)
            wait_for("time is over", lambda: state_of(target, topic) == "CompleteAbort", 90)
            producer.send(topic, b"late", partition=0)
            if flushed:
                producer.flush(30)
        with after, producer.transaction():
            producer.send(topic, b"next", partition=0)
    kept: dict[bytes, int] = {} if protocol == 1 else {b"next": 1}
    assert values_of(target, topic, "read_committed") == kept


@pytest.mark.usefixtures("protocol")
def test_with_leaves_the_error_of_the_block(target: BrokerProcess, topic: str) -> None:
    """Who was fenced and did not meet it is told by the next call."""
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as zombie:
        with pytest.raises(ZeroDivisionError), zombie.transaction():
            zombie.send(topic, b"lost", partition=0).result(30)
            inherit(target, topic)
            raise ZeroDivisionError
        with pytest.raises(ProducerFencedError):
            zombie.begin()


@pytest.mark.usefixtures("protocol")
def test_commit_tells_what_the_transaction_failed_by(
    kbroker: BrokerProcess, topic: str, flushed: bool
) -> None:
    """By the same error, however often, whoever asks; no advice to abort what `with` aborts."""
    wire.create_topic(kbroker.port, topic, 2, {"max.message.bytes": "1000"})
    told = f"the transaction of '{topic}' has failed: .*MESSAGE_TOO_LARGE"
    with producer_of(kbroker, topic) as producer:
        with pytest.raises(MessageTooLargeError, match=told), producer.transaction():
            producer.send(topic, b"x" * 5000, partition=1)
            if flushed:
                producer.flush(30)
        producer.begin()
        producer.send(topic, b"x" * 5000, partition=1)
        producer.flush(30)
        for _ in range(2):
            with pytest.raises(MessageTooLargeError, match=told):
                producer.commit(60)
        with pytest.raises(MessageTooLargeError, match=told):
            producer.send_offsets_to_transaction({(topic, 0): 1}, topic, 60)
        with pytest.raises(KafkaError, match=r"call abort\(\)") as caught:
            producer.begin()
        assert isinstance(caught.value.__cause__, MessageTooLargeError)
        producer.abort(60)
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
    assert values_of(kbroker, topic, "read_committed") == {b"kept": 1}
