"""A round of chaos: a broker on a slow disk under load, its end, and the judgement."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tests.faults.chaos import latency
from tests.faults.chaos.first_directory import first_directory_probes
from tests.faults.chaos.group_commits import PROTOCOLS, GroupCommits
from tests.faults.chaos.health import Health, names_of_each, settle_folders
from tests.faults.chaos.processes import Processes
from tests.faults.chaos.scenarios import (
    BRIEF_TOPICS,
    GROUPS,
    KILL,
    MEMBERS,
    PRODUCERS,
    STOP,
    TOPICS,
    TRANSACTIONS,
    Scenario,
)
from tests.faults.chaos.topic_churn import BRIEF, BulkCreation, TopicChurn
from tests.faults.chaos.transactions import PARTITIONS, Transactions
from tests.faults.chaos.workload import Workload
from tests.support import wire
from tests.support.delays import Delays
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for
from tests.support.wire import FIND_COORDINATOR, call_once

OFFSETS, STATES = 4, 3
SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": str(OFFSETS),
    "transaction.state.log.num.partitions": str(STATES),
    "auto.create.topics.enable": "false",
    "log.segment.bytes": "1048576",
    "log.segment.delete.delay.ms": "1000",
    "kbroker.journal.bytes.max": "16777216",
}
STEADY, TRANSACTED = "steady", "transacted"
STEADY_PARTITIONS = 4
#: Limits from the end of the delays: everything works, and a killed broker serves again.
WORKS_S, SERVES_S = 5.0, 10.0
#: The limit for a stop, to which the longest delay of one call is added, and of the delayed ones
#: among those that a stop makes one after the other. Without loads there are few of those.
STOP_S = 10.0
STOP_CALLS = 20
#: After a kill, disk calls of the next start are delayed for this time.
SLOW_START_S = 3.0
ENDED_S = 10.0
PREPARED_S = 60.0
CALL_S = 5.0
#: A start on an idle machine. A slower start extends all limits by twice the difference.
IDLE_START_S = 1.5


@dataclass
class Report:
    """The result of a round: faults, and figures."""

    scenario: Scenario
    seed: int
    faults: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        verdict = f"{len(self.faults)} faults" if self.faults else "no fault"
        lines = [f"seed {self.seed}, {self.scenario.name}: {verdict}", *self.notes, *self.faults]
        return "\n  ".join(lines)


class Round:
    """One scenario with one seed, in its own folder.

    `damage` changes the files of the stopped broker before its last start: for controls.
    """

    def __init__(
        self,
        scenario: Scenario,
        seed: int,
        folder: Path,
        damage: Callable[[BrokerProcess], None] | None = None,
    ) -> None:
        self.scenario, self.seed, self.folder = scenario, seed, folder
        self.damage = damage
        self.report = Report(scenario, seed)
        self.first, self.second = folder / "data", folder / "second"
        self.workloads: list[Workload] = []

    def play(self) -> Report:
        """Play the round. Every error becomes a line of the report."""
        self.folder.mkdir(parents=True, exist_ok=True)
        more = (self.second,) if self.scenario.second else ()
        with Delays(self.folder, [self.first, *more]) as delays:
            self.delays = delays
            self.broker = KbrokerProcess(
                self.folder / "broker", SETTINGS, self.first, environ=delays.environment,
                more_dirs=more,
            )  # fmt: skip
            self.broker.stop_timeout_s = STOP_S + 20
            self.processes = Processes(self.broker, self.folder)
            try:
                self._play()
            except (AssertionError, TimeoutError) as error:
                self._fault(f"{type(error).__name__}: {error}")
            except Exception:
                self._fault(traceback.format_exc())
            finally:
                delays.end()
                self.processes.kill()
                self.broker.kill()
                for one in self.workloads:
                    one.stopping.set()
        return self.report

    def _play(self) -> None:
        self._begun = time.monotonic()
        self.broker.start()
        self._extra_s = max(0.0, 2 * (time.monotonic() - self._begun - IDLE_START_S))
        self._prepare()
        self._note_time("prepared")
        with self._probing():
            self._disturb()
        self._note_time("disturbed")
        for one in self.workloads:
            one.broker_ends.set()
        {STOP: self._stop, KILL: self._kill, "": self.delays.end}[self.scenario.ending]()
        self.report.notes.append(
            f"{self.delays.count} calls were delayed by {self.delays.total_s:.1f} s in all"
        )
        is_well = self._recover()
        self._note_time("recovered")
        if is_well:
            self._judge("after the delays")
            self._note_time("judged")
            self._timed_stop("a stop without delays", STOP_S)
        else:
            self.broker.kill()
        if self.damage:
            self.damage(self.broker)
        self.broker.start()
        if not is_well:
            self._check("after a kill")
        self._judge("after a restart")
        self._note_time("ended")
        if "Traceback" in self.broker.log_text():
            self._fault(f"the log has a traceback:\n{self.broker.log_tail()}")

    # --- load ------------------------------------------------------------------------------------

    def _prepare(self) -> None:
        wire.create_topic(self.broker.port, STEADY, STEADY_PARTITIONS)
        wire.create_topic(self.broker.port, TRANSACTED, PARTITIONS)
        self.processes.start(self.scenario.loads.get(PRODUCERS, 0),
                             self.scenario.loads.get(MEMBERS, 0))  # fmt: skip
        self.health = Health(self.broker, STEADY, OFFSETS, STATES, self.processes.topics)
        if self.scenario.prepared:
            for kind in (0, 1):
                key = {"key_type": kind, "coordinator_keys": ["any"]}
                call_once(self.broker.port, FIND_COORDINATOR, 4, key)
            failures, _ = self.health.recover(PREPARED_S)
            assert not failures, failures
        self.processes.wait_alive()
        self._add_workloads()

    def _add_workloads(self) -> None:
        broker, seed, loads = self.broker, str(self.seed), self.scenario.loads
        shared = ("shared-0", "shared-1")
        for number in range(loads.get(TOPICS, 0)):
            self._add(TopicChurn(f"churn-{number}", broker, seed, shared))
        for number in range(loads.get(BRIEF_TOPICS, 0)):
            self._add(TopicChurn(f"brief-{number}", broker, seed, shared, BRIEF))
        for number in range(loads.get(GROUPS, 0)):
            protocol = sorted(PROTOCOLS)[number % 2]
            name = f"group-{protocol}-{number}"
            self._add(GroupCommits(name, broker, seed, protocol, STEADY))
        for number in range(loads.get(TRANSACTIONS, 0)):
            name = f"transactions-{number}"
            self._add(Transactions(name, broker, seed, 1 + number % 2, TRANSACTED))

    def _add(self, workload: Workload) -> None:
        workload.slack_s += self._extra_s
        self.workloads.append(workload)

    @contextmanager
    def _probing(self) -> Iterator[None]:
        """Measure an ordinary client's latencies within the block."""
        machine = latency.api_versions(self.broker)
        probes = [machine, *self._probes()]
        for probe in probes:
            probe.start()
        try:
            yield
        finally:
            for probe in probes:
                probe.end()
            limit_s = latency.P99_S + 5 * machine.latency().p99_s
            delay_s = self.scenario.plan.longest_ms / 1000
            for probe in probes:
                self.report.faults += probe.faults(limit_s + probe.disk_calls * delay_s)
                self.report.notes.append(f"{probe.name}: {probe.latency()}")

    def _probes(self) -> list[latency.Probe]:
        probes = [latency.metadata(self.broker, STEADY), latency.live_page(self.broker),
                  latency.find_coordinator(self.broker, "any")]  # fmt: skip
        if self.scenario.second:
            return probes + first_directory_probes(self.broker, STEADY, STEADY_PARTITIONS, OFFSETS)
        if self.scenario.prepared:
            for protocol, name in zip(PROTOCOLS, names_of_each("beating", OFFSETS), strict=False):
                probes.append(latency.heartbeat(self.broker, protocol, name, STEADY))
        return probes

    def _disturb(self) -> None:
        root = self.second if self.scenario.second else None
        self.delays.begin(replace(self.scenario.plan, seed=self.seed, root=root))
        if self.scenario.bulk:
            bulk = BulkCreation("bulk", self.broker, str(self.seed), self.scenario.bulk)
            self._add(bulk)
            bulk.start()
            _let_pass(self.scenario.lead_s)
        for one in self.workloads:
            one.start()
        _let_pass(self.scenario.seconds)

    # --- the end of the delays -------------------------------------------------------------------

    def _stop(self) -> None:
        """Send SIGTERM while calls are slow. The next start has no delays."""
        plan = self.scenario.plan
        calls = STOP_CALLS if self.scenario.loads else 0
        delayed = 1 + calls * plan.per_thousand / 1000
        self._timed_stop("SIGTERM", STOP_S + delayed * plan.longest_ms / 1000)
        self.delays.end()
        self._start_again()

    def _kill(self) -> None:
        """Send SIGKILL while a call waits. The next start is delayed for a while."""
        with suppress(TimeoutError):  # a broker that hangs makes no call
            wait_for("a call waits", lambda: self.delays.under_way, CALL_S)
        self.broker.kill()
        self.delays.renew()
        begun = time.monotonic()
        self.broker.launch()
        with suppress(TimeoutError):
            wait_for("a slow start", self.broker.is_ready, SLOW_START_S)
        self.delays.end()
        self._note_start(begun)

    def _start_again(self) -> None:
        self.delays.renew()
        begun = time.monotonic()
        self.broker.launch()
        self._note_start(begun)

    def _note_start(self, begun: float) -> None:
        self.broker.start_timeout_s = SERVES_S + self._extra_s
        self.broker.wait_until_ready()
        self.report.notes.append(f"it serves {time.monotonic() - begun:.1f} s after its start")

    def _timed_stop(self, what: str, limit_s: float) -> None:
        begun = time.monotonic()
        try:
            status = self.broker.stop()
        except AssertionError as error:
            self._fault(f"{what}: {str(error).splitlines()[0]}")
            return
        took_s = time.monotonic() - begun
        self.report.notes.append(f"{what} took {took_s:.1f} s, status {status}")
        limit_s += self._extra_s
        if took_s > limit_s or status not in (0, 1):
            self._fault(f"{what}: status {status} after {took_s:.1f} s, the limit is {limit_s:.1f}")

    def _recover(self) -> bool:
        """Return whether everything works in time; note clients without an answer."""
        for one in self.workloads:
            one.stopping.set()
        begun = time.monotonic()
        is_well = self._check("after the delays")
        if is_well:
            self._wait_producers()
        for one in self.workloads:
            one.wait_ended(begun + ENDED_S + self._extra_s)
            self.report.faults += one.faults
            if one.counts:
                counts = ", ".join(f"{key} x {n}" for key, n in sorted(one.counts.items()))
                self.report.notes.append(f"{one.name}: {counts}")
        return is_well

    def _wait_producers(self) -> None:
        try:
            self.processes.wait_alive(WORKS_S + self._extra_s)
        except TimeoutError as error:
            self._fault(f"after the delays: {error}")

    def _check(self, when: str) -> bool:
        limit_s = WORKS_S + self._extra_s
        failures, took_s = self.health.recover(limit_s)
        what = f"{len(failures)} things do not work after" if failures else "everything works in"
        self.report.notes.append(f"{when}: {what} {took_s:.1f} s")
        for failure in failures:
            self._fault(f"{when}, {limit_s:.1f} s: {failure}")
        return not failures

    def _judge(self, when: str) -> None:
        for one in self.workloads:
            self.report.faults += [f"{when}: {line}" for line in one.judge()]
        self.report.faults += [f"{when}: {line}" for line in settle_folders(self.broker)]
        self.report.faults += [f"{when}: {line}" for line in self.processes.judge()]

    def _note_time(self, what: str) -> None:
        self.report.notes.append(f"{what} after {time.monotonic() - self._begun:.1f} s")

    def _fault(self, text: str) -> None:
        self.report.faults.append(text)


def _let_pass(seconds: float) -> None:
    threading.Event().wait(seconds)
