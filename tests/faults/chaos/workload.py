"""Workloads: client threads that keep a history and note faults."""

from __future__ import annotations

import math
import random
import threading
import time
import traceback
from collections import Counter
from typing import Any

from tests.support.processes import BrokerProcess
from tests.support.wire import ConnectionClosedError, WireConnection

#: A client ends after this many faults. Each may have taken as long as a timeout.
FAULTS_MAX = 3
#: An answer may come this much later than the timeout of its request.
SLACK_S = 3.0
#: The limit for requests that have no timeout of their own.
ANSWER_S = 15.0


class UnansweredError(Exception):
    """The broker has kept the connection and sent no answer in time."""


class Session:
    """A connection that is opened again when the broker has closed it."""

    def __init__(self, broker: BrokerProcess, deadline: float = math.inf) -> None:
        """`deadline`: no answer may come after it, by time.monotonic."""
        self.broker, self._deadline = broker, deadline
        self._connection: WireConnection | None = None

    def call(
        self, api: int, version: int, body: dict[str, Any], within_s: float = ANSWER_S
    ) -> dict[str, Any] | None:
        """Return the answer; None where the connection is lost, so that the outcome is unknown."""
        within_s = max(0.01, min(within_s, self._deadline - time.monotonic()))
        try:
            if self._connection is None:
                self._connection = WireConnection(self.broker.port, timeout_s=within_s)
            self._connection.socket.settimeout(within_s)
            return self._connection.call(api, version, body)
        except TimeoutError:
            self.close()
            raise UnansweredError(f"API {api}: no answer within {within_s:.1f} s") from None
        except (ConnectionClosedError, OSError):
            self.close()
            return None

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class Workload:
    """A client with a thread that repeats `step` until it is stopped, then calls `finish`."""

    def __init__(self, name: str, broker: BrokerProcess, seed: str) -> None:
        self.name, self.broker = name, broker
        self._thread = threading.Thread(target=self.run, name=name, daemon=True)
        self.chance = random.Random(f"{seed} {name}")
        self.session = Session(broker)
        self.slack_s = SLACK_S
        self.stopping = threading.Event()
        self.broker_ends = threading.Event()
        self.faults: list[str] = []
        self.counts: Counter[str] = Counter()

    def start(self) -> None:
        """Start the thread if it does not run yet."""
        if self._thread.ident is None:
            self._thread.start()

    def step(self) -> None:
        """Make one request or a few."""
        raise NotImplementedError

    def finish(self) -> None:
        """End open transactions and the like."""

    def judge(self) -> list[str]:
        """Compare the broker with the history. Return the differences."""
        return []

    def call(
        self, api: int, version: int, body: dict[str, Any], within_s: float = ANSWER_S
    ) -> dict[str, Any] | None:
        """Call as Session.call does; note a fault and return None where no answer comes."""
        try:
            return self.session.call(api, version, body, within_s)
        except UnansweredError as error:
            self.fault(str(error))
            return None

    def fault(self, text: str) -> None:
        self.faults.append(f"{self.name}: {text}")

    def pause(self, longest_s: float) -> None:
        self.stopping.wait(self.chance.uniform(0, longest_s))

    def run(self) -> None:
        while not self.stopping.is_set() and len(self.faults) < FAULTS_MAX:
            self._guarded(self.step)
        self._guarded(self.finish)
        self.session.close()

    def _guarded(self, work: Any) -> None:
        try:
            work()
        except UnansweredError as error:
            self.fault(str(error))
        except Exception:
            self.fault(traceback.format_exc())

    def wait_ended(self, deadline: float) -> None:
        """Wait until the thread has ended; note a fault if it runs beyond `deadline`."""
        if self._thread.ident is None:
            return
        self._thread.join(max(0.0, deadline - time.monotonic()))
        if self._thread.is_alive():
            self.fault("its last request is not answered")
