"""Answers of the control plane that wait for a log's high watermark, and waking its thread."""

from __future__ import annotations

import struct
import threading
import time
from pathlib import Path

import pytest

from kbroker.ext import testing_log
from kbroker.ext import testing_network as handlers
from kbroker.ext.data_plane import DataPlane
from tests.support.engine import KEYS, Client, engine_port, running_engine
from tests.support.logs import batch, open_log
from tests.support.waits import wait_for

BODY, FAILED = b"written", b"the disk failed"


@pytest.fixture
def engine():
    with running_engine() as running:
        yield running


@pytest.fixture
def client(engine):
    with Client(engine_port(engine)) as connected:
        yield connected


@pytest.fixture
def plane():
    """Only to wake who waits for a log."""
    return DataPlane({})


@pytest.fixture
def lagging(tmp_path):
    """Makes a log whose high watermark is moved by hand."""
    journal = testing_log.TestLogJournal(str(tmp_path), started=False)
    made = []

    def make(topic="topic"):
        made.append(open_log(tmp_path / f"{topic}-0"))
        journal.attach(made[-1])
        return made[-1]

    yield make
    while made:
        made.pop().close(clean=False, sync=False)
    journal.stop()


def ask(engine, client, correlation_id):
    client.send(handlers.CONTROL, correlation_id)
    return engine.next_request(5000)


def ops_live(engine):
    return engine.stats()["ops_live"]


class TestRespondWhen:
    def test_waits_for_the_high_watermark(self, engine, client, plane, lagging):
        log = lagging()
        log.append(batch(3), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, 2, BODY, FAILED)
        ask(engine, client, 2).respond_when(log, 3, BODY * 2, FAILED)
        client.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            client.receive()
        client.socket.settimeout(20)
        for end, expected in ((2, (1, BODY)), (3, (2, BODY * 2))):
            testing_log.advance_hw(log, end)
            plane.wake(log)
            assert client.receive() == expected
        wait_for("freed", lambda: ops_live(engine) == 0, 5)

    def test_waits_for_several(self, engine, client, plane, lagging):
        """Which are durable in any order; one that goes, or comes too late, fails it."""
        logs = [lagging("a"), lagging("b")]
        for log in logs:
            log.append(batch(3), leader_epoch=0)
        ask(engine, client, 1).respond_when_all([(log, 2) for log in logs], BODY, FAILED)
        ask(engine, client, 2).respond_when_all([(log, 3) for log in logs], BODY, FAILED)
        ask(engine, client, 3).respond_when_all([(log, 3) for log in logs], BODY, FAILED, 50)
        for log in reversed(logs):
            testing_log.advance_hw(log, 2)
            plane.wake(log)
        assert client.receive() == (1, BODY)
        logs[0].take_offline(5)
        plane.wake(logs[0])
        testing_log.advance_hw(logs[1], 3)
        plane.wake(logs[1])
        assert client.receive() == (2, FAILED)
        assert client.receive() == (3, FAILED)
        wait_for("freed", lambda: ops_live(engine) == 0, 5)

    def test_gives_up_in_time(self, engine, client, plane, lagging):
        log = lagging()
        log.append(batch(2), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, 1, BODY, FAILED, 60_000)
        ask(engine, client, 2).respond_when(log, 2, BODY, FAILED, 50)
        testing_log.advance_hw(log, 1)
        plane.wake(log)
        assert client.receive() == (1, BODY)
        assert client.receive() == (2, FAILED)
        testing_log.advance_hw(log, 2)
        plane.wake(log)
        wait_for("freed", lambda: ops_live(engine) == 0, 5)

    def test_answers_at_once_what_is_there(self, engine, client, lagging):
        log = lagging()
        log.append(batch(3), leader_epoch=0)
        testing_log.advance_hw(log, 3)
        ask(engine, client, 1).respond_when(log, 3, BODY, b"")
        assert client.receive() == (1, BODY)
        large = bytes(range(256)) * 4000
        ask(engine, client, 2).respond_when(log, 0, large, large)
        assert client.receive() == (2, large)

    def test_a_log_without_a_journal_is_durable_when_it_is_written(self, engine, client, tmp_path):
        log = open_log(tmp_path / "plain-0")
        _, last = log.append(batch(3), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, last + 1, BODY, FAILED)
        assert client.receive() == (1, BODY)
        log.close()

    def test_keeps_its_place_in_the_order_of_answers(self, engine, client, plane, lagging):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, 1, BODY, FAILED)
        client.send(handlers.ECHO, 2, b"data plane")
        ask(engine, client, 3).respond(b"control plane")
        testing_log.advance_hw(log, 1)
        plane.wake(log)
        assert [client.receive() for _ in range(3)] == [
            (1, BODY),
            (2, b"data plane"),
            (3, b"control plane"),
        ]

    @pytest.mark.parametrize("failed", [FAILED, b"", FAILED * 1000])
    def test_tells_that_the_log_is_gone(self, engine, client, plane, lagging, failed):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, 1, BODY, failed)
        log.mark_deleted()
        plane.wake(log)
        assert client.receive() == (1, failed)
        ask(engine, client, 2).respond_when(log, 1, BODY, failed)
        assert client.receive() == (2, failed)

    def test_what_was_durable_before_the_log_went_is_told_as_such(self, engine, client, lagging):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        testing_log.advance_hw(log, 1)
        log.mark_deleted()
        ask(engine, client, 1).respond_when(log, 1, BODY, FAILED)
        assert client.receive() == (1, BODY)

    def test_a_second_answer_and_no_log_are_errors(self, engine, client, lagging):
        log = lagging()
        request = ask(engine, client, 1)
        with pytest.raises(TypeError):
            request.respond_when(None, 0, BODY, FAILED)
        request.respond_when(log, 0, BODY, FAILED)
        with pytest.raises(RuntimeError):
            request.respond_when(log, 0, BODY, FAILED)
        with pytest.raises(RuntimeError):
            request.respond(BODY)
        assert client.receive() == (1, BODY)

    def test_a_connection_that_dies_while_it_waits(self, engine, plane, lagging):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        with Client(engine_port(engine)) as client:
            for i in range(10):
                ask(engine, client, i).respond_when(log, 1, BODY, FAILED)
        wait_for("cancelled", lambda: ops_live(engine) == 0, 5)
        testing_log.advance_hw(log, 1)
        plane.wake(log)

    def test_a_connection_that_died_before_the_answer(self, plane, lagging):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        with running_engine() as engine, Client(engine_port(engine)) as client:
            request = ask(engine, client, 1)
            engine.stop(0)
            request.respond_when(log, 1, BODY, FAILED)
            testing_log.advance_hw(log, 1)
            plane.wake(log)

    def test_stop_does_not_wait_for_ever(self, engine, client, lagging):
        log = lagging()
        log.append(batch(1), leader_epoch=0)
        ask(engine, client, 1).respond_when(log, 1, BODY, FAILED)
        begin = time.monotonic()
        engine.stop(100)
        assert time.monotonic() - begin < 3
        assert client.is_closed()
        assert ops_live(engine) == 0

    def test_watermark_and_answer_race(self, engine, client, plane, lagging):
        """Another thread moves the watermark while the answer is given: each comes once."""
        log = lagging()
        turns = 2000
        appended = threading.Semaphore(0)

        def move():
            for i in range(turns):
                appended.acquire()
                testing_log.advance_hw(log, i + 1)
                plane.wake(log)

        mover = threading.Thread(target=move)
        mover.start()
        for i in range(turns):
            request = ask(engine, client, i)
            _, last = log.append(batch(1), leader_epoch=0)
            appended.release()
            request.respond_when(log, last + 1, BODY, FAILED)
            assert client.receive() == (i, BODY)
        mover.join()


def running_plane(folder: Path) -> tuple[DataPlane, int]:
    plane = DataPlane({"num.network.threads": 1, "num.io.threads": 1})
    plane.open_journal(
        str(folder),
        buffer_bytes=1 << 20,
        file_bytes=8 << 20,
        bytes_max=64 << 20,
        flush_interval_ms=60_000,
    )
    port = plane.engine.listen("127.0.0.1", 0, "PLAINTEXT")
    plane.engine.set_api_versions({0: struct.pack(">hi", 0, 0)}, KEYS)
    plane.engine.start()
    return plane, port


def test_the_journal_is_asked_to_write_at_once(tmp_path):
    """The journal's own interval is a minute here; a hundred appends share few groups."""
    plane, port = running_plane(tmp_path)
    log = open_log(tmp_path / "topic-0")
    plane.adopt(log)
    clients = [Client(port) for _ in range(100)]
    for i, client in enumerate(clients):
        client.send(handlers.CONTROL, i)
    for _ in range(100):
        _, last = log.append(batch(1), leader_epoch=0)
        plane.engine.next_request(5000).respond_when(log, last + 1, BODY, FAILED)
    for i, client in enumerate(clients):
        assert client.receive() == (i, BODY)
        client.socket.close()
    assert log.high_watermark == 100
    assert plane.journal_stats()["groups"] <= 100
    plane.engine.stop()
    plane.stop_journal()
    log.close()
    plane.close_journal(unlink_files=True)


class TestWakeControl:
    def test_ends_a_wait(self, engine):
        woken = threading.Event()

        def wait():
            assert engine.next_request(20_000) is None
            woken.set()

        waiting = threading.Thread(target=wait)
        waiting.start()
        engine.wake_control()
        assert woken.wait(5)
        waiting.join()

    def test_is_not_lost_when_nobody_waits_and_counts_once(self, engine):
        for _ in range(3):
            engine.wake_control()
        begin = time.monotonic()
        assert engine.next_request(20_000) is None
        assert time.monotonic() - begin < 5
        assert engine.next_request(20) is None
        assert time.monotonic() - begin >= 0.02

    def test_keeps_no_request_waiting(self):
        """The queue counts a request before it holds it: once the one network thread has counted
        the second, the first is there."""
        with (
            running_engine({"num.network.threads": 1}) as engine,
            Client(engine_port(engine)) as first,
            Client(engine_port(engine)) as second,
        ):
            first.send(handlers.CONTROL, 1)
            wait_for("queued", lambda: engine.stats()["control_queue"] == 1, 5)
            second.send(handlers.CONTROL, 2)
            wait_for("queued", lambda: engine.stats()["control_queue"] == 2, 5)
            engine.wake_control()
            for correlation_id, client in enumerate((first, second), 1):
                engine.next_request(5000).respond(BODY)
                assert client.receive() == (correlation_id, BODY)
            assert engine.next_request(0) is None
