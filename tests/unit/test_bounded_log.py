"""What others can cause to be logged is bounded, and what was left out is told."""

from __future__ import annotations

import logging
import struct
from types import SimpleNamespace

import pytest

from kbroker.bounded_log import LINES_BURST, LINES_PER_S, BoundedLog
from kbroker.clock import FakeClock
from kbroker.ext import testing_network as handlers
from kbroker.operations import Operations
from kbroker.protocol import ApiKey
from kbroker.server.control import ControlThread, Mailbox
from tests.support.control import FakeRequest
from tests.support.engine import Client, engine_port, running_engine
from tests.support.waits import wait_for

LOG = logging.getLogger("kbroker.bounded_log_test")


def test_a_burst_then_some_a_second_then_how_many_were_left_out(caplog):
    clock = FakeClock()
    log = BoundedLog(LOG, clock)
    with caplog.at_level(logging.INFO):
        for number in range(LINES_BURST + 70):
            log.tell(logging.WARNING, "line %d", number)
        assert len(caplog.records) == LINES_BURST
        log.tell(logging.ERROR, "the broker's own")
        assert caplog.messages[-1] == "the broker's own"
        log.tell_dropped(5)
        assert caplog.messages[-1].startswith("75 lines dropped: ")
        told = len(caplog.records)
        log.tell_dropped()
        clock.advance(1000)
        for _ in range(LINES_PER_S * 3):
            log.tell(logging.INFO, "again")
        assert len(caplog.records) == told + LINES_PER_S


def test_lines_of_bad_clients_are_bounded_and_those_lost_in_the_ring_are_told(caplog):
    """The control thread is not started: its last look at the lines is what is tried."""
    bad = struct.pack(">i", -1)
    frames = 600
    with running_engine() as engine, caplog.at_level(logging.INFO, logger="kbroker.network"):
        for _ in range(frames):
            with Client(engine_port(engine)) as client:
                client.socket.sendall(bad)
                assert client.is_closed()
        wait_for("the ring to be full", lambda: engine.stats()["log_lines_dropped"] > 0, 5)
        wait_for("all closed", lambda: engine.stats()["connections"] == 0, 5)
        plane, mailbox = SimpleNamespace(engine=engine), Mailbox(lambda: None)
        control = ControlThread(
            plane, None, FakeClock(), mailbox, (), (), watch=None, operations=Operations(lambda: 0)
        )
        control.stop()
        told = [one for one in caplog.messages if "a frame of -1 bytes" in one]
        assert len(told) == LINES_BURST
        assert caplog.messages[-1].startswith(f"{frames - LINES_BURST} lines dropped: ")


def test_errors_have_places_of_their_own_in_the_ring(tmp_path):
    empty = (tmp_path / "empty").open("w+b")
    with empty, running_engine(fd=empty.fileno()) as engine:
        port = engine_port(engine)
        while not engine.stats()["log_lines_dropped"]:
            with Client(port) as client:
                client.socket.sendall(struct.pack(">i", -1))
                assert client.is_closed()
        with Client(port) as client:
            client.send(handlers.REGIONS, 1, struct.pack(">ii", 0, 1))
            with pytest.raises(EOFError):
                client.receive()
        wait_for("all closed", lambda: engine.stats()["connections"] == 0, 5)
        *others, (level, text) = engine.next_log_lines()
        assert (level, "shorter than announced" in text) == (logging.ERROR, True)
        assert {one for one, _ in others} == {logging.WARNING}


def test_lines_on_requests_that_cannot_be_read_are_bounded(control_with, caplog):
    control = control_with()
    with caplog.at_level(logging.INFO, logger="kbroker.api"):
        for number in range(LINES_BURST + 40):
            version = 7 if number % 2 else 99  # a body without an end; no such version
            request = FakeRequest(ApiKey.CREATE_TOPICS, version, b"\xff")
            control.dispatcher.serve(request)
            assert request.closed
        assert len(caplog.records) == LINES_BURST
        control.dispatcher.tell_dropped()
    assert caplog.messages[-1].startswith("40 lines dropped: ")
    assert "is not served" in caplog.messages[0]
    assert "malformed request" in caplog.messages[1]
