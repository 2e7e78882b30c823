"""Heartbeats of the loop: on time while Python does nothing, told apart, nothing taken on trust."""

from __future__ import annotations

import ctypes
import socket
import struct
import threading
from collections.abc import Callable, Collection, Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from kbroker.ext.client_heartbeat import (
    ANSWERED,
    BROKEN,
    EVENT_HEARTBEAT,
    POLL_EXPIRED,
    HeartbeatDriver,
)
from kbroker.ext.client_loop import ClientLoop
from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.seats import Seat, poll_until, seated, settle, share
from tests.support.waits import wait_for

CLASSIC, CONSUMER = 12, 68
SHORT = {
    "group.min.session.timeout.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "100",
    "group.consumer.min.session.timeout.ms": "5000",
    "group.consumer.session.timeout.ms": "5000",
}
SETTINGS = {
    "classic": {"session_timeout_ms": 5000, "heartbeat_interval_ms": 100},
    "consumer": {"group_protocol": "consumer"},
}


@pytest.mark.parametrize("protocol", SETTINGS)
def test_a_member_lives_while_something_holds_the_gil(
    start_kbroker: Callable[..., BrokerProcess], protocol: str
) -> None:
    broker = start_kbroker(SHORT)
    wire.create_topic(broker.port, "t", 2)
    one = Seat(broker.bootstrap, "g", **SETTINGS[protocol])
    with seated(one):
        one.group.subscribe(["t"], one)
        poll_until(lambda: share(one) == [2], one)
        before = one.group.metadata()
        # A function called by PyDLL keeps the GIL: no Python thread runs for longer than a session.
        ctypes.PyDLL(None).usleep(7_000_000)
        one.group.commit({next(iter(one.owned)): OffsetAndMetadata(1)}, 5.0)
        assert one.group.metadata() == before
        assert one.heartbeat.counts[1] >= 10


class Slow(Seat):
    """Gives partitions up in its own time."""

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        super().on_revoked(partitions)
        a_few_heartbeats(self)


def a_few_heartbeats(seat: Seat) -> None:
    before = seat.heartbeat.counts[1]
    wait_for("some heartbeats", lambda: seat.heartbeat.counts[1] >= before + 3, 20)


def test_who_gives_up_and_does_not_poll_is_not_fenced(
    start_kbroker: Callable[..., BrokerProcess],
) -> None:
    """What is given up is answered with a new epoch, with which the next heartbeat goes."""
    broker = start_kbroker(SHORT)
    wire.create_topic(broker.port, "t", 2)
    one = Slow(broker.bootstrap, "g", group_protocol="consumer")
    two = Seat(broker.bootstrap, "g", group_protocol="consumer")
    with seated(one, two):
        one.group.subscribe(["t"], one)
        poll_until(lambda: share(one) == [2], one)
        settle(one)
        two.group.subscribe(["t"], two)
        poll_until(lambda: share(one) == [1], one, two)
        poll_until(lambda: share(two) == [1], two)
        a_few_heartbeats(one)
        settle(one, two)
        assert [what for what, _ in one.story] == ["assigned", "revoked", "assigned"]


class Broker:
    """The other end of a link: answers each request with what the test has for it."""

    def __init__(self) -> None:
        self.ours, theirs = socket.socketpair()
        self.heartbeat = HeartbeatDriver()
        self.loop = ClientLoop(self.heartbeat, client_id="c")
        self.loop.start()
        self.link = self.loop.add_link(theirs.detach(), {CLASSIC: (0, 4), CONSUMER: (0, 1)})
        self.requests: list[bytes] = []

    def beat(self, *, epoch_at: int = 0, body: bytes = b"body-of-it", **more: float) -> None:
        given = {"interval_s": 0.01, "timeout_s": 5.0, "poll_deadline_s": 1e9, **more}
        self.heartbeat.beat(
            7, self.link, CONSUMER if epoch_at else CLASSIC, 1 if epoch_at else 4, body,
            flexible=True, epoch_at=epoch_at, epoch=3, **given,
        )  # fmt: skip

    def request(self) -> bytes:
        """The body of the next request."""
        self.ours.settimeout(10.0)
        (length,) = struct.unpack(">i", self.exactly(4))
        frame = self.exactly(length)
        self.correlation = frame[4:8]
        return frame[8 + 2 + 1 + 1 :]

    def exactly(self, size: int) -> bytes:
        got = b""
        while len(got) < size:
            got += self.ours.recv(size - len(got))
        return got

    def answer(self, body: bytes) -> None:
        frame = self.correlation + b"\0" + body
        self.ours.sendall(struct.pack(">i", len(frame)) + frame)

    def notes(self) -> list[tuple[int, int, bytes]]:
        """What comes up, waited for by its event."""
        while not (found := self.heartbeat.take()):
            assert any(one[0] == EVENT_HEARTBEAT for one in self.loop.events(10.0))
        return found

    def end(self) -> None:
        self.loop.close()
        self.ours.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    made = Broker()
    yield made
    made.end()


def classic(error: int) -> bytes:
    return struct.pack(">ih", 0, error) + b"\0"


def consumer(epoch: int, interval_ms: int, assigned: bytes = b"\xff") -> bytes:
    return struct.pack(">ih", 0, 0) + b"\0\2m" + struct.pack(">ii", epoch, interval_ms) + assigned


def test_what_says_go_on_goes_no_further(broker: Broker) -> None:
    broker.beat()
    for _ in range(5):
        assert broker.request() == b"body-of-it"
        broker.answer(classic(0))
    broker.request()
    broker.answer(classic(27))  # REBALANCE_IN_PROGRESS comes up, and heartbeats go on
    assert broker.notes() == [(ANSWERED, 7, classic(27))]
    broker.request()
    broker.answer(classic(25))  # UNKNOWN_MEMBER_ID ends them
    assert broker.notes() == [(ANSWERED, 7, classic(25))]
    broker.ours.settimeout(0.2)
    with pytest.raises(TimeoutError):
        broker.exactly(1)


def test_epochs_and_intervals_are_taken_over(broker: Broker) -> None:
    broker.beat(epoch_at=4, body=b"GGMM\0\0\0\0rest")
    assert broker.request() == b"GGMM\0\0\0\3rest"
    broker.answer(consumer(3, 10) + b"\0")
    assert broker.request() == b"GGMM\0\0\0\3rest"
    news = consumer(4, 10) + b"\0"
    broker.answer(news)
    assert broker.notes() == [(ANSWERED, 7, news)]
    assert broker.request() == b"GGMM\0\0\0\4rest"
    assignment = consumer(4, 10, b"\1\1\0") + b"\0"
    broker.answer(assignment)
    assert broker.notes() == [(ANSWERED, 7, assignment)]
    assert broker.heartbeat.epoch == 4


def test_one_is_held_back_while_python_speaks(broker: Broker) -> None:
    broker.beat()
    broker.request()
    assert not broker.heartbeat.hold(0.05)  # its answer has not come
    waits = threading.Thread(target=broker.heartbeat.hold, args=(10.0,))
    waits.start()
    broker.answer(classic(0))
    waits.join(60)
    assert not waits.is_alive()
    broker.ours.settimeout(0.1)
    with pytest.raises(TimeoutError):
        broker.exactly(1)
    broker.heartbeat.release()
    broker.request()


def test_an_application_that_does_not_poll_is_told_of(broker: Broker) -> None:
    broker.beat(poll_deadline_s=0.0)
    assert broker.notes() == [(POLL_EXPIRED, 7, b"")]
    broker.ours.settimeout(0.1)
    with pytest.raises(TimeoutError):
        broker.exactly(1)


def test_a_link_that_breaks_is_replaced(broker: Broker) -> None:
    broker.beat()
    broker.request()
    broker.ours.close()
    assert broker.notes() == [(BROKEN, 7, b"")]
    broker.ours, theirs = socket.socketpair()
    broker.heartbeat.relink(7, broker.loop.add_link(theirs.detach(), {CLASSIC: (0, 4)}))
    assert broker.request() == b"body-of-it"
    broker.heartbeat.stop()
    broker.answer(classic(25))  # of what was stopped meanwhile: nobody is told
    assert broker.heartbeat.hold(10.0)
    assert broker.heartbeat.take() == []


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_are_an_answer_that_comes_up_or_is_fine(body: bytes, modern: bool) -> None:
    """Invariant tested: whatever a broker answers, heartbeats go on, or the bytes come up."""
    broker = Broker()
    try:
        broker.beat(epoch_at=4 if modern else 0, poll_deadline_s=1e9)
        broker.request()
        broker.answer(body)
        wait_for("the answer is read", lambda: broker.heartbeat.counts[1] == 1, 60)
        for kind, serial, told in broker.heartbeat.take():
            assert (kind, serial, told) == (ANSWERED, 7, body)
    finally:
        broker.end()
