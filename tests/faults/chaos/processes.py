"""Producers and group members on librdkafka and on kbroker's client, each a process."""

from __future__ import annotations

from pathlib import Path

from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.load import Load
from tests.support.members.team import Team
from tests.support.oracle import History, judge

TOPIC, PARTITIONS = "load", 3
PRODUCERS = ("confluent", "kbroker")
MEMBERS = ("confluent/range", "kbroker/consumer")
START_S = 60.0


class Processes:
    """Idempotent producers of one topic, and groups that read it."""

    topics = (TOPIC,)

    def __init__(self, broker: KbrokerProcess, folder: Path) -> None:
        self.broker, self.folder = broker, folder
        self._load: Load | None = None
        self._teams: list[Team] = []
        self._histories: list[History] | None = None

    def start(self, producers: int, members: int) -> None:
        """Create the topic. Start `producers` producers and `members` groups of two members."""
        wire.create_topic(self.broker.port, TOPIC, PARTITIONS)
        if producers:
            kinds = (PRODUCERS * producers)[:producers]
            self._load = Load(
                self.broker.bootstrap, TOPIC, self.folder, partitions=PARTITIONS, kinds=kinds
            )
        for number in range(members):
            home = self.folder / f"members-{number}"
            home.mkdir()
            team = Team(self.broker.bootstrap, TOPIC, home, partitions=PARTITIONS)
            team.group += f"-{number}"
            self._teams.append(team)
            for _ in range(2):
                team.add(MEMBERS[number % len(MEMBERS)], commit="async")

    def wait_alive(self, within_s: float = START_S) -> None:
        """Wait until each producer has got another acknowledgement. Raises TimeoutError."""
        if self._load is not None:
            self._load.wait_for_each(within_s)

    def judge(self) -> list[str]:
        """Compare the records and commits with the histories; return what is wrong."""
        wrong = []
        if self._load is not None and self._histories is None:
            self._histories = self._load.finish()
        if self._histories:
            verdict = judge(self.broker.port, TOPIC, PARTITIONS, self._histories)
            wrong += [f"{kind}: {lines}" for kind, lines in verdict.faults().items()]
            failed = sum(len(history.failed) for history in self._histories)
            if failed:
                wrong.append(f"{failed} records of idempotent producers failed")
        for team in list(self._teams):
            try:
                team.wait_delivered()
                team.wait_committed()
            except (AssertionError, TimeoutError) as error:
                wrong.append(f"{team.group}: {error}")
                self._teams.remove(team)  # a second wait would take as long
                team.end()
        return wrong

    def kill(self) -> None:
        """Kill the processes that are left."""
        if self._load is not None:
            self._load.kill()
        for team in self._teams:
            team.end()
