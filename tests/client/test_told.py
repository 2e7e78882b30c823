"""What is wrong is told: by the log where it may pass, at once where it cannot be meant."""

from __future__ import annotations

import logging
import re
import socket
import time
from collections.abc import Callable, Iterator

import pytest

from kbroker.client import Admin, Consumer, OffsetAndMetadata, Producer, TopicPartition
from kbroker.client.errors import (
    KafkaError,
    RequestTimeoutError,
    UnknownTopicOrPartitionError,
)
from tests.client.between import silent as standing_still
from tests.client.test_consumer import produce, taken
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.waits import free_ports, wait_for

PROTOCOLS = ["classic", "consumer"]


@pytest.fixture
def nobody() -> str:
    """An address where nothing listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


@pytest.fixture
def silent() -> Iterator[str]:
    """An address that takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


def warnings(caplog: pytest.LogCaptureFixture, of: str) -> list[str]:
    """Those that have this in them."""
    told = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
    return [text for text in told if of in text]


def test_who_cannot_be_reached_is_told_of_once(
    nobody: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Producer(bootstrap_servers=nobody, max_block_ms=1000) as producer:
        for _ in range(2):
            with pytest.raises(KafkaError):
                producer.send("t", b"")
        assert producer._cluster.metrics()["failed-connection-total"] > 2
    (told,) = warnings(caplog, nobody)
    assert told.startswith(f"no broker listens on {nobody}")


def test_a_broker_that_goes_is_no_fault_of_a_consumer(
    start_kbroker: Callable[..., BrokerProcess], caplog: pytest.LogCaptureFixture
) -> None:
    """When its metadata are due meanwhile."""
    broker = start_kbroker()
    wire.create_topic(broker.port, "t", 1)
    produce(broker.port, "t", 1)
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", metadata_max_age_ms=100
    ) as consumer:
        consumer.assign([("t", 0)])
        assert consumer.poll(60)
        broker.kill()
        caplog.clear()
        begun = consumer.metrics()["metadata-request-total"]
        wait_for(
            "metadata were due more than once",
            lambda: consumer.metrics()["metadata-request-total"] > begun + 6,
            60,
        )
    assert [one for one in caplog.records if one.levelno >= logging.ERROR or one.exc_info] == []
    assert len(warnings(caplog, "")) < 4


def test_max_block_bounds_connecting(silent: str) -> None:
    with Producer(bootstrap_servers=silent, max_block_ms=300) as producer:
        began = time.monotonic()
        with pytest.raises(KafkaError):
            producer.send("t", b"")
        assert time.monotonic() - began < 5


def in_time(call: Callable[[], object]) -> None:
    """Ends with an error long before request.timeout.ms does."""
    began = time.monotonic()
    with pytest.raises(RequestTimeoutError):
        call()
    assert time.monotonic() - began < 8


def test_a_call_has_its_own_limit_where_nobody_answers(silent: str) -> None:
    limits = {"bootstrap_servers": silent, "default_api_timeout_ms": 300}
    with Admin(**limits) as admin, Consumer(**limits) as consumer:
        in_time(admin.list_topics)
        in_time(admin.list_groups)
        in_time(lambda: consumer.partitions_for("t"))
        in_time(lambda: consumer.end_offsets([("t", 0)], 0.3))


def test_a_call_has_its_own_limit_where_a_broker_stands_still(
    start_kbroker: Callable[..., BrokerProcess]
) -> None:
    broker = start_kbroker()
    wire.create_topic(broker.port, "t", 1)
    limits = {"bootstrap_servers": broker.bootstrap, "default_api_timeout_ms": 300}
    with Admin(**limits) as admin, Consumer(**limits, metadata_max_age_ms=0) as consumer:
        wait_for("it is reached", lambda: admin.list_topics() and admin.list_groups() == [], 60)
        wait_for("its topic", lambda: len(consumer.partitions_for("t")), 60)
        known = consumer.end_offsets([("t", 0)], 60)
        with standing_still(broker):
            in_time(admin.list_topics)
            in_time(admin.list_groups)
            in_time(admin.list_transactions)
            in_time(lambda: consumer.end_offsets(known, 0.3))
            in_time(lambda: consumer.offsets_for_times({("t", 0): 1}, 0))
            began = time.monotonic()
            assert len(consumer.partitions_for("t")) == 1, "old, but known"
            assert time.monotonic() - began < 8
        wait_for("it goes on", lambda: consumer.end_offsets(known, 60) == known, 60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_topic_that_is_not_there_is_told_of_once(
    target: BrokerProcess, topic: str, protocol: str, caplog: pytest.LogCaptureFixture
) -> None:
    with Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, group_protocol=protocol,
        allow_auto_create_topics=False, retry_backoff_ms=20, retry_backoff_max_ms=20,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic])
        wait_for(
            "a warning", lambda: consumer.poll(0.1) == [] and warnings(caplog, repr(topic)), 60
        )
        consumer.poll(0.5)
        assert len(warnings(caplog, repr(topic))) == 1
        wire.create_topic(target.port, topic, 1)
        wait_for("it is read", lambda: consumer.poll(0.1) == [] and consumer.assignment(), 60)


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_without_a_coordinator_the_end_is_near(nobody: str, protocol: str) -> None:
    consumer = Consumer(bootstrap_servers=nobody, group_id="g", group_protocol=protocol)
    consumer.subscribe(["t"])
    consumer.poll(0.2)
    began = time.monotonic()
    consumer.close()
    assert time.monotonic() - began < 20, "it may take thirty"


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_commit_that_was_not_done_tells_why(
    target: BrokerProcess, topic: str, protocol: str
) -> None:
    """A partition that is not there may be about to come: it is waited for."""
    wire.create_topic(target.port, topic, 1)
    with Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, group_protocol=protocol,
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.assign([(topic, 0)])
        consumer.commit({(topic, 0): 0}, 60)
        with pytest.raises(
            RequestTimeoutError,
            match=rf"not done within 1\.5 s: .*{topic}-9 .*UNKNOWN_TOPIC_OR_PARTITION",
        ) as told:
            consumer.commit({(topic, 0): 0, (topic, 9): 5}, 1.5)
        assert isinstance(told.value.__cause__, UnknownTopicOrPartitionError)


def test_what_was_not_looked_up_yet_is_committed_at_the_end(
    target: BrokerProcess, topic: str
) -> None:
    wire.create_topic(target.port, topic, 1)
    produce(target.port, topic, 10)
    with Consumer(bootstrap_servers=target.bootstrap, group_id=topic) as consumer:
        consumer.assign([(topic, 0)])
        consumer.seek((topic, 0), 0)
        assert len(taken(consumer, 10)) == 10
    with Consumer(bootstrap_servers=target.bootstrap, group_id=topic) as consumer:
        found = consumer.committed([(topic, 0)])
        assert [one and one.offset for one in found.values()] == [10]


def test_an_interceptor_that_fails_undoes_no_commit(
    target: BrokerProcess, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Faulty:
        def on_commit(self, offsets: object) -> None:
            raise RuntimeError("not today")

    class Onlooker:
        told = 0

        def on_commit(self, offsets: object) -> None:
            self.told += 1

    wire.create_topic(target.port, topic, 1)
    onlooker, called = Onlooker(), []
    where = TopicPartition(topic, 0)
    consumer = Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, enable_auto_commit=False,
        interceptor_classes=[Faulty(), onlooker],
    )  # fmt: skip
    with consumer:
        consumer.assign([where])
        consumer.commit({where: OffsetAndMetadata(5)})
        consumer.commit_async({where: OffsetAndMetadata(6)}, lambda _, error: called.append(error))
        wait_for("the callback", lambda: consumer.poll(0.1) == [] and called, 60)
        assert called == [None]
        assert consumer.committed([where])[where] == OffsetAndMetadata(6)
    assert onlooker.told == 2
    assert "not today" in caplog.text
    caplog.clear()


def test_a_refused_subscription_changes_nothing(target: BrokerProcess, topic: str) -> None:
    with Consumer(
        bootstrap_servers=target.bootstrap, group_id=topic, allow_auto_create_topics=False
    ) as consumer:
        with pytest.raises(TypeError, match="takes a list of topics"):
            consumer.subscribe(topic)
        consumer.assign([(topic, 0)])
        with pytest.raises(UnknownTopicOrPartitionError):
            taken(consumer, 1)
        with pytest.raises(KafkaError, match="unsubscribe"):
            consumer.subscribe([topic])
        assert consumer.assignment() == {(topic, 0)} and not consumer.subscription()
        consumer.unsubscribe()
        consumer.subscribe(re.compile("matches-nothing-yet"))
        with pytest.raises(KafkaError, match="unsubscribe"):
            consumer.assign([(topic, 0)])
        consumer.unsubscribe()
        consumer.assign([(topic, 0)])
        with pytest.raises(UnknownTopicOrPartitionError):
            taken(consumer, 1)


def test_partitions_and_times_are_what_they_are_called(
    target: BrokerProcess, topic: str
) -> None:
    wire.create_topic(target.port, topic, 1)
    with Consumer(bootstrap_servers=target.bootstrap) as consumer:
        for wrong in ("t9", ["t9"], [(topic, "0")]):
            with pytest.raises(TypeError, match="partition"):
                consumer.assign(wrong)  # type: ignore[arg-type]
        consumer.assign([(topic, 0)])
        now_s = time.time()
        with pytest.raises(TypeError, match="whole numbers of ms"):
            consumer.seek_to_timestamp(now_s)  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=f"{topic}-0.*whole numbers of ms"):
            consumer.offsets_for_times({(topic, 0): now_s})  # type: ignore[dict-item]
        with pytest.raises(ValueError, match="ms since 1970"):
            consumer.seek_to_timestamp(-1)
