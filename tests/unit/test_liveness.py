"""Both planes are asked, and one that does not answer is named."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.ext import testing_network as handlers
from kbroker.ext.debug import counts_objects, live_objects
from kbroker.server.liveness import Planes
from tests.support.engine import Client, engine_port, running_engine
from tests.support.waits import wait_for

LONG_S, SHORT_S = 60.0, 0.2


def at_once(do: Callable[[], None]) -> None:
    do()


def test_all_answer() -> None:
    with running_engine() as engine:
        planes = Planes(engine, at_once)
        for _ in range(3):
            assert planes.fault(LONG_S) is None
        engine.resize(4, 2)
        assert planes.fault(LONG_S) is None


@pytest.mark.skipif(not counts_objects(), reason="a build that counts nothing")
def test_check_counts_each_mutex_that_it_locks() -> None:
    """A count that falls below zero ends a broker of the debug build, and hides a mutex that stays
    locked."""
    with running_engine() as engine:
        planes = Planes(engine, at_once)
        for _ in range(5):
            assert planes.fault(LONG_S) is None
    assert live_objects()["locked mutex"] == 0


def test_a_network_thread_that_hangs_is_named_until_it_goes_on() -> None:
    with running_engine() as engine, Client(engine_port(engine)) as client:
        planes = Planes(engine, at_once)
        assert client.call(handlers.ECHO, 1, b"x") == b"x"
        handlers.set_hanging(True)
        try:
            client.send(handlers.HANG, 2, b"y")
            told = None
            while told is None:  # until the request has come to it
                told = planes.fault(SHORT_S)
            assert "no answer from network thread " in told
            assert planes.fault(SHORT_S) is not None
        finally:
            handlers.set_hanging(False)
        assert client.receive() == (2, b"y")
        assert planes.fault(LONG_S) is None


def test_a_control_thread_that_hangs_is_named_until_it_goes_on() -> None:
    posted: list[Callable[[], None]] = []
    with running_engine() as engine:
        planes = Planes(engine, posted.append)
        told = planes.fault(SHORT_S)
        assert told is not None and told.startswith("no answer from the control thread in")
        assert planes.fault(SHORT_S) is not None
        assert len(posted) == 1
        posted.pop()()
        assert planes.fault(SHORT_S) is not None
        posted.pop()()
        planes = Planes(engine, at_once)
        assert planes.fault(LONG_S) is None


def test_acceptor_that_hangs_is_named_in_time() -> None:
    """The check itself does not hang with it, nor with its lock."""
    with running_engine() as engine:
        planes = Planes(engine, at_once)
        assert planes.fault(LONG_S) is None
        handlers.hang_acceptor(engine)
        try:
            fault = wait_for("the acceptor to hang", lambda: planes.fault(SHORT_S), LONG_S)
            assert fault == "no answer from the acceptor in 0.2 s"
            assert planes.fault(SHORT_S) == fault
        finally:
            handlers.set_hanging(False)
        assert planes.fault(LONG_S) is None


def test_two_checkers_do_not_disturb_each_other() -> None:
    """The watchdog and the health pages check at the same time, on threads of their own."""
    with running_engine() as engine, ThreadPoolExecutor(2) as pool:
        planes = [Planes(engine, at_once) for _ in range(2)]

        def check(own: Planes) -> list[str | None]:
            return [own.fault(LONG_S) for _ in range(100)]

        assert list(pool.map(check, planes)) == [[None] * 100] * 2
