"""What a producer says of records that nobody asks about, and of records at its end."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable

import pytest

from kbroker.client import AsyncProducer, Producer
from kbroker.client.errors import KafkaError
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

REFUSED = "not delivered, and the application has not asked"
CLOSED = "closed; records were not delivered"
LIMIT = {"max.message.bytes": "200"}
LARGE = b"x" * 1000
SLOW_S = 30.0


def told(caplog: pytest.LogCaptureFixture, text: str) -> list[str]:
    return [one.getMessage() for one in caplog.records if text in one.getMessage()]


def test_refused_record_of_no_interest_is_logged_once(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Each kind of failure once a minute; metrics and close() count all of them."""
    wire.create_topic(target.port, topic, 1, LIMIT)
    wire.create_topic(target.port, f"{topic}-other", 1, LIMIT)
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=0) as producer:
        for _ in range(5):
            producer.send(topic, LARGE)
            producer.flush(SLOW_S)
        producer.send(f"{topic}-other", LARGE)
        producer.send_batch(topic, [LARGE] * 2)
        producer.flush(SLOW_S)
        wait_for("the count", lambda: producer.metrics()["record-error-unseen-total"] == 8, SLOW_S)
        lines = told(caplog, REFUSED)
        assert len(lines) == 2 and all("MessageTooLarge" in line for line in lines)
        assert f"topic={topic} records=1 " in lines[0]
    lines = told(caplog, CLOSED)
    assert len(lines) == 2 and f"topic={topic} records=7 " in lines[0]


def test_refused_record_is_logged_when_its_delivery_goes(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As soon as the last delivery of its batch is gone, whenever that is."""
    wire.create_topic(target.port, topic, 1, LIMIT)
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=60_000) as producer:
        first, second = producer.send(topic, LARGE), producer.send_batch(topic, [LARGE])
        producer.flush(SLOW_S)
        assert first.done() and second.done()
        del first
        gc.collect()
        assert producer.metrics()["record-error-unseen-total"] == 0
        del second
        wait_for("the line", lambda: told(caplog, REFUSED), SLOW_S)
        assert producer.metrics()["record-error-unseen-total"] == 2
        asked = producer.send(topic, LARGE)
        producer.flush(SLOW_S)
        assert asked.error is not None
        del asked
        kept = producer.send(topic, LARGE)
        producer.flush(SLOW_S)
        assert producer.metrics()["record-error-unseen-total"] == 2
    assert len(told(caplog, CLOSED)) == 1 and kept.error is not None


def test_refused_record_of_an_async_producer_is_logged(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    wire.create_topic(target.port, topic, 1, LIMIT)

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=target.bootstrap, linger_ms=0) as producer:
            await producer.send(topic, LARGE)
            await producer.flush(SLOW_S)

    asyncio.run(main())
    assert len(told(caplog, REFUSED)) == 1 and len(told(caplog, CLOSED)) == 1


@pytest.mark.parametrize("how", ["result", "callback", "purge"])
def test_refused_record_that_is_asked_about_is_not_logged(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    wire.create_topic(target.port, topic, 1, LIMIT)
    errors: list[BaseException | None] = []
    linger_ms = 60_000 if how == "purge" else 0
    with Producer(bootstrap_servers=target.bootstrap, linger_ms=linger_ms) as producer:
        if how == "result":
            with pytest.raises(KafkaError):
                producer.send(topic, LARGE).result(SLOW_S)
        elif how == "callback":
            producer.send(topic, LARGE, on_delivery=lambda one: errors.append(one.exception(0)))
            producer.flush(SLOW_S)
            assert isinstance(errors[0], KafkaError)
        else:
            producer.send(topic, b"some")
            producer.purge()
        assert producer.metrics()["record-error-unseen-total"] == 0
    assert not told(caplog, REFUSED) and not told(caplog, CLOSED)


def test_dropped_producer_warns_of_what_is_lost_alone(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Records whose outcome is known wait for nothing, though their batches go a moment later."""
    wire.create_topic(target.port, topic, 1)
    for _ in range(200):
        producer = Producer(bootstrap_servers=target.bootstrap, linger_ms=0)
        producer.send(topic, b"some").result(SLOW_S)
        del producer
    assert not told(caplog, "given up")
    producer = Producer(bootstrap_servers=target.bootstrap, linger_ms=60_000)
    producer.send(topic, b"some")
    del producer
    gc.collect()
    wait_for("a warning", lambda: told(caplog, "1 batches of records are given up"), SLOW_S)


def test_frequency_is_bounded_by_a_clock(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    from kbroker.client import producer_failures

    now = [0.0]
    monkeypatch.setattr(producer_failures, "monotonic", lambda: now[0])
    failures = producer_failures.Failures()
    note: Callable[[], None] = lambda: failures.note(KafkaError("why"), "t", 3)  # noqa: E731
    for _ in range(4):
        note()
    now[0] = 61.0
    note()
    first, second = told(caplog, REFUSED)
    assert "records=3 " in first and "records=12 " in second
    assert failures.records == 15
