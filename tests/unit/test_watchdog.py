"""The watchdog's times, seen from the socket of the service manager."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.server import service
from kbroker.server.service import Notifier, Watchdog
from tests.support.waits import wait_for

PERIOD_S = 4.0
DEADLINE_S = 60.0
HANG = "no answer from the control thread"


class Manager:
    """The service manager's end of the datagram socket."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(address)
        self.statuses: list[str] = []

    def close(self) -> None:
        self._socket.close()

    def next_alive_s(self, timeout_s: float = DEADLINE_S) -> float:
        """Wait for the next WATCHDOG=1; when it came. Raises TimeoutError."""
        until = time.monotonic() + timeout_s
        while True:
            self._socket.settimeout(max(until - time.monotonic(), 0.001))
            message = self._socket.recv(4096).decode()
            if message == "WATCHDOG=1":
                return time.monotonic()
            self.statuses.append(message.removeprefix("STATUS="))


class Broker:
    """A fault function as kbroker.server.liveness has it: an answer that comes after the check that
    requested it counts for the next check."""

    def __init__(self) -> None:
        self.checks: list[float] = []
        self.hangs_for_s = 0.0  # from the next check on
        self._answers_at_s = 0.0

    def fault(self, timeout_s: float) -> str | None:
        begun_s = time.monotonic()
        self.checks.append(begun_s)
        if self.hangs_for_s:
            self._answers_at_s = begun_s + self.hangs_for_s
            self.hangs_for_s = 0.0
        silent_s = self._answers_at_s - begun_s
        if silent_s > 0:
            threading.Event().wait(min(silent_s, timeout_s))
        return HANG if silent_s > timeout_s else None


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Manager]:
    manager = Manager(str(tmp_path / "notify"))
    yield manager
    manager.close()


Start = Callable[[Callable[[float], str | None], float], None]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a watchdog with a fault function and a period; stop it after the test."""
    started: list[Watchdog] = []

    def start(fault: Callable[[float], str | None], period_s: float) -> None:
        notifier = Notifier(str(tmp_path / "notify"))
        started.append(Watchdog(notifier, period_s, fault, lambda: "serving"))
        started[-1].start()

    yield start
    for watchdog in started:
        watchdog.stop()


@pytest.mark.parametrize("hang", [0.1, 0.3, 0.4])
def test_watchdog_late_answer_comes_within_period(
    hang: float, manager: Manager, start: Start
) -> None:
    """The threads are silent for up to half a period from the beginning of a check on. A check
    gives up after a quarter: with another half before the next it would be 5/4 of a period."""
    broker = Broker()
    start(broker.fault, PERIOD_S)
    before_s = manager.next_alive_s()
    broker.hangs_for_s = hang * PERIOD_S
    after_s = manager.next_alive_s()
    assert (0.5 + hang) * PERIOD_S - 0.1 < after_s - before_s < PERIOD_S
    assert len(broker.checks) == (2 if hang < 0.25 else 3)


def test_watchdog_silent_broker_gets_no_message(
    manager: Manager, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    """Checks follow one another, the fault is reported once, and an answer ends it."""
    period_s = 0.8
    broker = Broker()
    broker.hangs_for_s = 3 * period_s
    with caplog.at_level(logging.WARNING):
        start(broker.fault, period_s)
        begun_s = time.monotonic()
        alive_s = manager.next_alive_s()
    assert alive_s - begun_s > 3.4 * period_s
    assert manager.statuses == [f"not alive: {HANG}"]
    assert caplog.text.count("not alive") == 1
    assert len(broker.checks) >= 9, "a check takes a quarter of the period"
    wait_for("the end of the fault in the log", lambda: "alive again" in caplog.text, DEADLINE_S)
    with pytest.raises(TimeoutError):
        while True:
            manager.next_alive_s(period_s / 4)
    assert manager.statuses[-1] == "serving"


def test_watchdog_fault_at_once_does_not_spin(
    manager: Manager, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    checks: list[float] = []

    def fail(_: float) -> str:
        checks.append(time.monotonic())
        return HANG

    start(fail, 0.2)
    with pytest.raises(TimeoutError):
        manager.next_alive_s(1.0)
    assert 2 <= len(checks) <= 1.0 / service._CHECK_AGAIN_S + 1
    assert manager.statuses == [f"not alive: {HANG}"]
    assert caplog.text.count("not alive") == 1
