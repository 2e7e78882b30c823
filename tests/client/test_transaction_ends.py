"""How transactions end without a commit(): by close(), within `with`, and what is told of it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kbroker.client.admin_client import Admin
from kbroker.client.errors import (
    KafkaError,
    MessageTooLargeError,
    PurgedError,
    TransactionTimeoutError,
)
from kbroker.protocol import ApiKey
from tests.client.between import Between, silent
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

ROOT = Path(__file__).parents[2]
ABORTED = ("PrepareAbort", "CompleteAbort")


# ---- close()


@pytest.mark.usefixtures("protocol")
def test_close_aborts_what_is_open(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    with pytest.raises(ZeroDivisionError), producer_of(target, topic) as producer:
        producer.begin()
        producer.send(topic, b"dropped", partition=0)
        producer.flush(30)
        raise ZeroDivisionError
    assert state_of(target, topic) in ABORTED
    assert not values_of(target, topic, "read_committed")


@pytest.mark.usefixtures("protocol")
def test_the_end_of_async_with_aborts_what_is_open(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)

    async def work() -> None:
        async with async_producer_of(target, topic) as producer:
            await producer.init_transactions(60)
            await producer.begin()
            await producer.send_and_wait(topic, b"dropped", partition=0)

    asyncio.run(work())
    assert state_of(target, topic) in ABORTED
    assert not values_of(target, topic, "read_committed")


def test_close_does_not_deliver_what_it_aborts(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 2)
    producer = producer_of(kbroker, topic, linger_ms=60_000)
    producer.begin()
    waiting = producer.send(topic, b"waits", partition=0)
    producer.close(30)
    with pytest.raises(PurgedError):
        waiting.result(0)
    assert not values_of(kbroker, topic, "read_uncommitted")


@pytest.mark.usefixtures("protocol")
def test_close_aborts_what_has_failed(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 2, {"max.message.bytes": "1000"})
    with producer_of(kbroker, topic) as producer:
        producer.begin()
        producer.send(topic, b"dropped", partition=0).result(30)
        producer.send(topic, b"x" * 5000, partition=1)
        with pytest.raises(MessageTooLargeError):
            producer.commit(60)
        assert state_of(kbroker, topic) == "Ongoing"
    assert state_of(kbroker, topic) in (*ABORTED, "Empty")  # of a new epoch


@pytest.mark.usefixtures("protocol")
def test_close_aborts_a_commit_that_never_came_there(
    between: Callable[..., Between], topic: str
) -> None:
    way = between(ApiKey.END_TXN)
    wire.create_topic(way.broker.port, topic, 1)
    with producer_of(way.broker, topic) as producer:
        producer.begin()
        producer.send(topic, b"dropped").result(30)
        way.cut = True
        with pytest.raises(TransactionTimeoutError):
            producer.commit(1.0)
        way.cut = False
    assert state_of(way.broker, topic) in ABORTED


@pytest.mark.usefixtures("protocol")
def test_close_leaves_what_leave_open_left(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as producer, Admin(bootstrap_servers=target.bootstrap) as admin:
        producer.begin()
        producer.send(topic, b"kept", partition=0)
        left = producer.leave_open(30)
        producer.close(30)
        assert left is not None
        assert state_of(target, topic) == "Ongoing"
        admin.end_transaction(left, commit=True)
    wait_for("it is read", lambda: values_of(target, topic, "read_committed") == {b"kept": 1}, 60)


@pytest.mark.usefixtures("version_1")
def test_close_leaves_what_is_committed(
    between: Callable[..., Between], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its next epoch has not come: no abort is tried."""
    way = between(ApiKey.INIT_PRODUCER_ID)
    wire.create_topic(way.broker.port, topic, 1)
    with producer_of(way.broker, topic) as producer:
        producer.begin()
        producer.send(topic, b"kept").result(30)
        assert producer._transactions is not None
        producer._transactions._unsure = True
        way.held = True
        with pytest.raises(TransactionTimeoutError):
            producer.commit(1.0)
    assert not not_aborted(caplog)
    assert values_of(way.broker, topic, "read_committed", 1) == {b"kept": 1}


def test_close_aborts_for_as_long_as_it_may(
    start_kbroker: Callable[..., BrokerProcess], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, topic, 1)
    producer = producer_of(broker, topic)
    producer.begin()
    producer.send(topic, b"v").result(30)
    with silent(broker):
        began = time.monotonic()
        producer.close(1.0)
        assert time.monotonic() - began < 20  # below max.block.ms
    assert len(not_aborted(caplog)) == 1


def test_close_of_0_aborts_nothing(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    producer = producer_of(kbroker, topic)
    producer.begin()
    producer.send(topic, b"v").result(30)
    producer.close(0)
    assert state_of(kbroker, topic) == "Ongoing"
    producer_of(kbroker, topic).close()


@pytest.mark.usefixtures("protocol")
def test_close_waits_for_the_commit_of_another_thread(
    between: Callable[..., Between], topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    way = between(ApiKey.END_TXN)
    wire.create_topic(way.broker.port, topic, 1)
    producer = producer_of(way.broker, topic)
    producer.begin()
    producer.send(topic, b"kept").result(30)
    way.pass_on.clear()
    committing = threading.Thread(target=producer.commit, args=(60,))
    closing = threading.Thread(target=producer.close, args=(60,))
    committing.start()
    assert way.answering.wait(30)
    closing.start()
    closing.join(0.5)  # time enough for an abort to leave
    way.pass_on.set()
    for thread in (committing, closing):
        thread.join(60)
        assert not thread.is_alive()
    assert way.middle.seen == 1
    assert not not_aborted(caplog)
    assert values_of(way.broker, topic, "read_committed", 1) == {b"kept": 1}


@pytest.mark.usefixtures("protocol")
def test_close_within_a_commit_does_not_make_it_succeed(
    kbroker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a signal handler calls it: on the thread that commits."""
    wire.create_topic(kbroker.port, topic, 1)
    producer = producer_of(kbroker, topic)
    producer.begin()
    producer.send(topic, b"dropped").result(30)
    flush = producer.flush

    def interrupted(timeout: float | None = None) -> None:
        monkeypatch.setattr(producer, "flush", flush)
        flush(timeout)
        producer.close(30)

    monkeypatch.setattr(producer, "flush", interrupted)
    with pytest.raises(KafkaError):
        producer.commit(60)
    assert state_of(kbroker, topic) == "Ongoing"
    producer_of(kbroker, topic).close()


PROGRAM = """
import contextlib, os, sys
from kbroker.client.producer import Producer
producer = Producer(bootstrap_servers=sys.argv[1], transactional_id=sys.argv[2])
producer.init_transactions(60)
producer.begin()
producer.send(sys.argv[2], b"kept").result(60)
pid = os.fork()
if pid == 0:
    with contextlib.suppress(RuntimeError):
        producer.close(30)
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7
producer.commit(60)
"""


def test_a_child_of_fork_does_not_abort(kbroker: BrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    done = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", PROGRAM, kbroker.bootstrap, topic],
        capture_output=True, text=True, timeout=120, check=False, cwd=ROOT,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert values_of(kbroker, topic, "read_committed", 1) == {b"kept": 1}


# ---- a block that ends its transaction itself


@pytest.mark.usefixtures("protocol")
def test_a_block_may_end_its_transaction(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 2)
    with producer_of(target, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"kept", partition=0)
            producer.commit(60)
        with producer.transaction():
            producer.send(topic, b"dropped", partition=0)
            producer.abort(60)
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"kept", partition=1)
            producer.commit(60)
            raise ZeroDivisionError
        with producer.transaction():
            producer.abort(60)
            producer.begin()
            producer.send(topic, b"kept", partition=1)
    assert not not_aborted(caplog)
    assert values_of(target, topic, "read_committed") == {b"kept": 3}


@pytest.mark.usefixtures("protocol")
def test_an_async_block_may_end_its_transaction(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 2)

    async def work() -> None:
        async with async_producer_of(target, topic) as producer:
            await producer.init_transactions(60)
            async with producer.transaction():
                await producer.send(topic, b"kept", partition=0)
                await producer.commit(60)
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"dropped", partition=0)
                    await producer.abort(60)
                    raise ZeroDivisionError

    asyncio.run(work())
    assert not not_aborted(caplog)
    assert values_of(target, topic, "read_committed") == {b"kept": 1}


def test_a_block_may_leave_its_transaction_open(
    kbroker: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(kbroker.port, topic, 1)
    with producer_of(kbroker, topic) as producer, producer.transaction():
        producer.send(topic, b"v")
        producer.leave_open(30)
    assert not not_aborted(caplog)
    assert state_of(kbroker, topic) == "Ongoing"
    producer_of(kbroker, topic).close()


# ---- offsets that cannot be committed


@contextmanager
def refused(told: str) -> Iterator[None]:
    with pytest.raises((TypeError, ValueError)) as caught:
        yield
    assert f"{caught.type.__name__}: {caught.value}".startswith(told)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (({"over": 1}, "g"), "TypeError: offsets: 'over' is no (topic, partition)"),
        (({("t", 0): -5}, "g"), "ValueError: offset -5 of t-0 is negative"),
        (({("t", 0): 1}, None), "TypeError: group: NoneType is neither a group's name nor"),
        (({("t", 0): 1}, ("g", 1, "m")), "TypeError: group: tuple is neither a group's name nor"),
    ],
)
def test_offsets_that_cannot_be_committed_are_named(
    kbroker: BrokerProcess, topic: str, given: tuple[Any, Any], told: str
) -> None:
    """And the transaction goes on."""
    wire.create_topic(kbroker.port, topic, 1)

    async def work() -> None:
        async with async_producer_of(kbroker, topic) as producer:
            await producer.init_transactions(60)
            async with producer.transaction():
                await producer.send(topic, b"kept")
                with refused(told):
                    await producer.send_offsets_to_transaction(*given)

    with producer_of(kbroker, topic) as producer, producer.transaction():
        producer.send(topic, b"kept")
        with refused(told):
            producer.send_offsets_to_transaction(*given)
    asyncio.run(work())
    assert values_of(kbroker, topic, "read_committed", 1) == {b"kept": 2}
