"""What is done from time to time: a task that fails is done again, and told once a minute."""

from __future__ import annotations

import logging

import pytest

from kbroker.clock import FakeClock
from kbroker.errors import DiskError
from kbroker.server.upkeep import Upkeep
from tests.support.waits import wait_for


def test_what_fails_again_and_again_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """The disk's errors, each by its text; a fault of ours every time."""
    done: list[int] = []

    def write() -> None:
        done.append(1)
        raise DiskError("/data", OSError(28, "one" if len(done) < 10 else "two"))

    clock = FakeClock()
    upkeep = Upkeep("upkeep", [("writing", 1, write)], clock)
    upkeep.start()
    try:
        with caplog.at_level(logging.ERROR):
            wait_for("turns", lambda: clock.advance(1) or len(done) > 20, 60)
            assert len(caplog.messages) == 2
            assert all(line.startswith("writing failed: ") for line in caplog.messages)
            clock.advance(60_000)
            wait_for("it is told again", lambda: len(caplog.messages) > 2, 60)
    finally:
        upkeep.stop()
