"""Brokers that do not answer: silent ones, and answers that are lost on the way."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from kbroker.protocol import ApiKey
from tests.support.middle import Middle
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for


@contextmanager
def silent(broker: BrokerProcess) -> Iterator[None]:
    """It takes requests and answers none."""
    tasks = Path(f"/proc/{broker.pid}/task")
    os.kill(broker.pid, signal.SIGSTOP)
    try:
        wait_for("every thread stands still",
                 lambda: all("\nState:\tT" in (task / "status").read_text()
                             for task in tasks.iterdir()), 30)  # fmt: skip
        yield
    finally:
        os.kill(broker.pid, signal.SIGCONT)


class Between:
    """A broker behind a middle that passes on no answer of one API while it is `held`, and cuts the
    connections that ask by it while it is `cut`. An answer waits for `pass_on`, and `answering`
    says that one has come."""

    def __init__(self, api: ApiKey, start: Callable[..., BrokerProcess]) -> None:
        self.held = self.cut = False
        self.cuts = 0
        self.answering, self.pass_on = threading.Event(), threading.Event()
        self.pass_on.set()
        self.middle = Middle(int(api), self._answer, self._request)
        there = f"PLAINTEXT://127.0.0.1:{self.middle.port}"
        self.broker = start({"advertised.listeners": there})
        self.middle.to = self.broker.port

    def _answer(self, _: int, answer: bytes) -> bytes | None:
        self.answering.set()
        self.pass_on.wait(60)
        return None if self.held else answer

    def _request(self, _: int, request: bytes) -> bytes:
        if self.cut:
            self.cuts += 1
            raise EOFError
        return request
