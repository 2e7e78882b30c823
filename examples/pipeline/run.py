"""A whole run: the broker, the replay, the Spark process, kills where they are wanted, the end."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal, NamedTuple

from examples.pipeline import source
from examples.pipeline.plan import FLIGHTS, TOPICS, Event, Plan
from examples.pipeline.processes import Broker, Spark
from examples.pipeline.replay import replay, send_all
from kbroker.client import Admin

_LOOK_S = 0.2
REPLAY = "replay"
JOBS = ("clean", "enrich", "watch", "archive")

#: Called while it runs: what, how far it is, of how many.
Told = Callable[[str, int, int], None]


class Kill(NamedTuple):
    """kill -9 of one of the processes, when so much of all the work is done (0 to 1)."""

    whom: Literal["spark", "broker"]
    when: float


class SparkEndedError(Exception):
    """The Spark process has ended, and nobody killed it."""


class Run:
    """One run in a folder of its own, which it empties first."""

    def __init__(
        self, plan: Plan, *, days_per_s: float, told: Told, kills: Sequence[Kill] = ()
    ) -> None:
        self.plan, self.days_per_s = plan, days_per_s
        self.broker = Broker(plan.home / "broker")
        self.events: list[Event] = []
        self.replay_s = 0.0
        self.job_failures: list[str] = []
        self.kills_left = sorted(kills, key=lambda kill: kill.when)
        self.told = told
        self._at: dict[str, int] = dict.fromkeys((REPLAY, *JOBS), 0)
        self._of: dict[str, int] = {}
        self._failed: list[BaseException] = []

    def go(self) -> None:
        """Returns when all is worked off. The broker goes on."""
        self.broker.stop()
        shutil.rmtree(self.plan.home, ignore_errors=True)
        self.plan.home.mkdir(parents=True)
        self.broker.start()
        self.plan = replace(self.plan, bootstrap=self.broker.bootstrap)
        with Admin(bootstrap_servers=self.plan.bootstrap) as admin:
            admin.create_topics(TOPICS)
        send_all(self.plan.bootstrap, source.dimensions())
        spark = Spark(self.plan, self._heard)
        try:
            spark.start()
            self.events = source.events(self.plan)
            self._count()
            sender = threading.Thread(target=self._send, daemon=True)
            sender.start()
            self._watch(spark)
            sender.join()
        finally:
            spark.kill()

    def _count(self) -> None:
        raw = sum(event.topic == FLIGHTS for event in self.events)
        good = raw - sum(bool(fault) for _, fault in source.flights(self.plan.days))
        self._of = {REPLAY: len(self.events), "clean": raw + 1}
        self._of |= dict.fromkeys(("enrich", "watch", "archive"), good + 1)
        for name in self._of:
            self._tell(name, self._at[name])

    def _send(self) -> None:
        """The replay; its last word is a file that the Spark process looks for: the last time."""
        began = time.monotonic()
        try:
            replay(self.plan.bootstrap, self.events, self.days_per_s, self._sent)
            self.replay_s = time.monotonic() - began
            written = self.plan.replayed.with_suffix(".new")
            written.write_text(str(self.events[-1].timestamp_ms))
            written.rename(self.plan.replayed)
        except BaseException as error:
            self._failed.append(error)

    def _sent(self, records: int) -> None:
        self._tell(REPLAY, records)

    def _heard(self, said: dict[str, object]) -> None:
        if "job" in said:
            self._tell(str(said["job"]), int(str(said["at"])))
        elif "failed" in said:
            self.job_failures.append(f"{said['failed']}: {said['why']}")

    def _tell(self, name: str, at: int) -> None:
        """After a kill a job may count again what it had counted, and records come twice."""
        self._at[name] = max(self._at[name], at)
        if self._of:
            self.told(name, min(self._at[name], self._of[name]), self._of[name])

    def _done(self) -> float:
        """How much of all is done, from 0 to 1."""
        shares = [min(1.0, self._at[name] / of) for name, of in self._of.items()]
        return sum(shares) / len(shares)

    def _watch(self, spark: Spark) -> None:
        """Kills what is to be killed and starts it again, until the Spark process is done."""
        while not spark.done:
            if self._failed:
                raise self._failed[0]
            if self.kills_left and self._done() >= self.kills_left[0].when:
                whom = self.kills_left.pop(0).whom
                (spark if whom == "spark" else self.broker).kill()
                (spark if whom == "spark" else self.broker).start()
            status = spark.poll()
            if status is not None and not spark.done and spark.wait() != 0:
                text = f"Spark ended with exit status {status}; the end of {spark.log}:"
                raise SparkEndedError(text + spark.last_words())
            time.sleep(_LOOK_S)
        spark.wait()
