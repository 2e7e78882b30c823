"""The chores of the control thread: one that fails keeps no other from its turn."""

from __future__ import annotations

from types import SimpleNamespace

from kbroker.clock import SystemClock
from kbroker.operations import Operations
from kbroker.server.control import ControlThread, Mailbox
from tests.support.engine import running_engine
from tests.support.waits import wait_for


def test_one_that_fails_keeps_no_other_from_its_turn(caplog):
    turns = []

    def fails() -> None:
        turns.append("fails")
        raise OSError("no room")

    with running_engine() as engine:
        plane, mailbox = SimpleNamespace(engine=engine), Mailbox(engine.wake_control)
        chores = (fails, lambda: turns.append("goes on"))
        watch = SimpleNamespace(look=lambda: None)
        operations = Operations(lambda: 0)
        control = ControlThread(
            plane, None, SystemClock(), mailbox, (), chores, watch, operations
        )
        control.start()
        try:
            wait_for("two turns", lambda: len(turns) >= 4, 30)
        finally:
            engine.stop(0)
            control.stop()
    assert turns[:4] == ["fails", "goes on"] * 2
    assert caplog.messages.count("a chore of the control thread failed") >= 2
