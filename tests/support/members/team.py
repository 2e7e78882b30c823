"""Members of one group under way, and the judgement of what they did.

At least once: every record was seen by somebody. Nobody is passed over: a committed offset is
never beyond a record that nobody has seen, at any moment at which it is looked at, and it never
goes back. Both are told from the members' histories, not from what the broker says of itself.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from kbroker.client import Producer
from kbroker.client.admin_configs import alter_configs
from kbroker.client.cluster import Cluster
from kbroker.client.group_offsets import committed_offsets
from kbroker.client.groups import GroupDescription, describe_groups
from kbroker.client.offsets import LATEST, list_offsets
from tests.support.java import java_command
from tests.support.members.history import History, replay
from tests.support.needs import need_command
from tests.support.waits import wait_for

#: A group comes to rest in seconds; what the machine does besides decides how many.
LIMIT_S = 180.0
#: Sessions: one is to end soon; a static member is to be back in time however busy the machine is.
SESSION_MS, SEAT_MS = 6_000, 45_000
PAUSE_S = 0.05
#: Of a group of KIP-848, whose session the members do not choose; GROUP is the kind of resource.
GROUP, GROUP_SETTINGS = 32, {"consumer.session.timeout.ms": str(SEAT_MS)}
#: Exit statuses of members that were told to leave: Python's and kcat's, Java's, and one that was
#: told before it listened.
LEFT = (0, 143, -15)
PROGRAMS = {
    "kbroker": "tests.support.members.kbroker",
    "confluent": "tests.support.members.confluent",
    "kafka-python": "tests.support.members.kafka_python",
    "aiokafka": "tests.support.members.aio",
}
JAVA_ASSIGNORS = {
    "range": "org.apache.kafka.clients.consumer.RangeAssignor",
    "cooperative-sticky": "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
}
_KCAT_REBALANCE = re.compile(r"^% Group \S+ rebalanced.*?(assigned|revoked): (.*)$")


@dataclass
class Member:
    """A member's process, and its history as far as it was read."""

    name: str
    process: subprocess.Popen[bytes]
    path: Path
    is_kcat: bool = False
    ended: bool = False
    dismissed: bool = False
    history: History = field(default_factory=History)
    _read: dict[Path, int] = field(default_factory=dict)

    def update(self) -> History:
        """Reads what was written since; a last line that is not whole is left for later.

        Whoever is gone, killed or fenced owns nothing.
        """
        replay(self.history, self._news(self.path))
        if self.is_kcat:
            for line in self._news(self.path.with_suffix(".err")):
                if found := _KCAT_REBALANCE.match(line):
                    indexes = re.findall(r"\[(\d+)\]", found[2])
                    replay(self.history, [f"{found[1]} {','.join(indexes)}"])
        if self.dismissed and self.process.poll() in LEFT:
            self.ended = True
        if self.ended:
            self.history.owned.clear()
        return self.history

    def _news(self, path: Path) -> list[str]:
        if not path.exists():
            return []
        with path.open("rb") as file:
            file.seek(self._read.get(path, 0))
            data = file.read()
        whole = data.rfind(b"\n") + 1
        self._read[path] = self._read.get(path, 0) + whole
        return data[:whole].decode(errors="replace").splitlines()

    @property
    def alive(self) -> bool:
        return self.process.poll() is None


class Team:
    """Members of `group`, all reading `topic`. `classes`: of Java members, where there are any."""

    def __init__(
        self, bootstrap: str, topic: str, folder: Path, *, partitions: int,
        classes: Callable[[], Path] | None = None,
    ) -> None:  # fmt: skip
        self.bootstrap, self.topic, self.folder = bootstrap, topic, folder
        self.group, self.partitions, self.classes = f"group-of-{topic}", partitions, classes
        self.members: list[Member] = []
        self.cluster = Cluster(bootstrap, client_id="observer", timeout_s=60)
        self.committed: dict[int, int] = {}
        self.delivered = dict.fromkeys(range(partitions), 0)
        self.records: Counter[tuple[int, int]] = Counter()
        self._judged: dict[str, int] = {}

    # --- members ---------------------------------------------------------------------------------

    def add(self, kind: str, *, commit: str = "sync", instance: str | None = None) -> Member:
        """Starts a member. kind: LIBRARY/ASSIGNOR, or LIBRARY/consumer for KIP-848."""
        library = kind.partition("/")[0]
        name = f"{len(self.members)}-{library}"
        path = self.folder / f"{name}.history"
        if instance and kind.endswith("/consumer"):
            alter_configs(self.cluster, GROUP, self.group, set_values=GROUP_SETTINGS)
        command = self._command(kind, name, path, commit=commit, instance=instance)
        with path.with_suffix(".err").open("wb") as errors:
            out = path.open("wb") if library == "kcat" else subprocess.DEVNULL
            process = subprocess.Popen(command, stdout=out, stderr=errors)
        member = Member(name, process, path, is_kcat=library == "kcat")
        self.members.append(member)
        return member

    def _command(
        self, kind: str, name: str, path: Path, *, commit: str, instance: str | None
    ) -> list[str]:
        library, _, assignor = kind.partition("/")
        session_ms = SEAT_MS if instance else SESSION_MS
        if library == "kcat":
            return [
                need_command("kcat", "kcat"), "-b", self.bootstrap, "-G", self.group, self.topic,
                "-u", "-f", "seen %p %o\\n", "-X", f"client.id={name}",
                "-X", "auto.offset.reset=earliest", "-X", f"session.timeout.ms={session_ms}",
                "-X", "heartbeat.interval.ms=500", "-X", "auto.commit.interval.ms=200",
                "-X", f"partition.assignment.strategy={assignor}",
            ]  # fmt: skip
        if library == "java":
            assert self.classes is not None
            settings = {"bootstrap.servers": self.bootstrap, "group.id": self.group,
                        "client.id": name}  # fmt: skip
            if instance:
                settings["group.instance.id"] = instance
            if assignor == "consumer":
                settings["group.protocol"] = "consumer"
            else:
                settings["partition.assignment.strategy"] = JAVA_ASSIGNORS[assignor]
                settings |= {"session.timeout.ms": str(session_ms), "heartbeat.interval.ms": "500"}
            pairs = [f"{key}={value}" for key, value in settings.items()]
            return java_command(
                "GroupMember", self.topic, str(path), commit, *pairs, heap_mib=128,
                classes=self.classes(),
            )  # fmt: skip
        command = [
            sys.executable, "-m", PROGRAMS[library], "--bootstrap", self.bootstrap,
            "--topic", self.topic, "--group", self.group, "--client-id", name,
            "--history", str(path), "--commit", commit, "--session-ms", str(session_ms),
        ]  # fmt: skip
        command += ["--instance", instance] if instance else []
        return command + (
            ["--consumer-protocol"] if assignor == "consumer" else ["--assignor", assignor]
        )

    def live(self) -> list[Member]:
        """The members whose processes run."""
        return [member for member in self.members if member.alive]

    def staying(self) -> list[Member]:
        """Those of them that were not told to leave."""
        return [member for member in self.live() if not member.dismissed]

    def stop(self, *members: Member) -> None:
        """Lets members leave, at the same time."""
        for member in members:
            member.process.terminate()
        for member in members:
            status = member.process.wait(LIMIT_S)
            assert status in LEFT, (member.name, status, self.errors(member))
            member.ended = True

    def dismiss(self, member: Member) -> None:
        """Lets a member leave, without waiting for it."""
        member.dismissed = True
        member.process.terminate()

    def kill(self, member: Member) -> None:
        """SIGKILL: the group hears nothing of it until its session has expired."""
        member.process.kill()
        member.process.wait()
        member.ended = True

    def end(self) -> None:
        """Kills whatever runs still."""
        for member in self.live():
            self.kill(member)
        self.cluster.close()

    def errors(self, member: Member) -> str:
        """Why a member ends, or has ended."""
        said = member.path.with_suffix(".err").read_text(errors="replace")[-2000:]
        return member.update().fatal + said

    # --- waiting ---------------------------------------------------------------------------------

    def wait_shared(self) -> None:
        """Until every live member owns a partition, and every partition has one owner."""

        def shared() -> bool:
            owned = []
            for member in self.members:
                owned.append(self._update_one(member).owned)
            every = sorted(index for indexes in owned for index in indexes)
            return every == list(range(self.partitions)) and all(
                member.history.owned for member in self.live()
            )

        what = f"{len(self.live())} members share {self.topic}"
        try:
            wait_for(what, shared, LIMIT_S, PAUSE_S)
        except TimeoutError as error:
            owned = {member.name: sorted(member.history.owned) for member in self.live()}
            raise TimeoutError(f"{error}: {owned}; {self.described()}") from None

    def produce(self, count: int) -> None:
        """So many records, round robin."""
        with Producer(bootstrap_servers=self.bootstrap) as producer:
            sent = [
                producer.send(self.topic, b"%d" % number, partition=number % self.partitions)
                for number in range(count)
            ]
        for delivery in sent:
            delivery.result(0)

    def ends(self) -> dict[int, int]:
        """Partition to log end offset."""
        every = [(self.topic, index) for index in range(self.partitions)]
        found = list_offsets(self.cluster, dict.fromkeys(every, LATEST))
        return {index: found[topic, index].offset for topic, index in every}

    def wait_delivered(self) -> None:
        """Until every record there is was seen by somebody."""
        ends = self.ends()
        wait_for(f"all of {ends} are seen", lambda: self._update() == ends, LIMIT_S, PAUSE_S)

    def wait_committed(self) -> None:
        """Until the end of every partition is committed."""
        ends = self.ends()
        wait_for(f"{ends} committed", lambda: self.check_commits() == ends, LIMIT_S, PAUSE_S)

    def described(self) -> GroupDescription:
        """The group as its coordinator tells of it."""
        return describe_groups(self.cluster, [self.group])[self.group]

    # --- judgement -------------------------------------------------------------------------------

    def check_commits(self) -> dict[int, int]:
        """Looks at what is committed now and holds it against what was seen."""
        now = self.committed_now()
        for index, back in self.taken_back(now).items():
            what = f"{index}: {self.committed[index]} went back to {now}"
            self._wait_excused(index, back, what)
        self.committed = now

        def covered() -> bool:
            self._update()
            return all(self.delivered[index] >= offset for index, offset in now.items())

        # A client may commit between its handing out a record and the line that tells of it.
        wait_for(f"{now} seen, {self.delivered} are", covered, LIMIT_S, PAUSE_S)
        return now

    def committed_now(self) -> dict[int, int]:
        """Partition to committed offset."""
        told = committed_offsets(self.cluster, [self.group])[self.group]
        return {index: offsets.offset for (_, index), offsets in told.items()}

    def taken_back(self, now: dict[int, int]) -> dict[int, int]:
        """Partition to offset, where it is below the one of the last look; -1: it is gone."""
        every = {index: now.get(index, -1) for index in self.committed}
        return {index: offset for index, offset in every.items() if offset < self.committed[index]}

    def _wait_excused(self, index: int, offset: int, what: str) -> None:
        """Until a member tells that it took its own commit back: librdkafka sends asynchronous
        commits that a broken connection held up behind younger ones (rd_kafka_cgrp_defer)."""

        def told() -> bool:
            members = [member for member in self.members if member.name.endswith("confluent")]
            return any(member.update().late.get(index, offset + 1) <= offset for member in members)

        wait_for(what, told, LIMIT_S, PAUSE_S)

    def repeated(self) -> int:
        """How many deliveries were not the first of their record."""
        self._update()
        return self.records.total() - len(self.records)

    def refused(self) -> list[str]:
        """Errors of commits, of all members."""
        return [error for member in self.members for error in member.update().refused]

    def _update_one(self, member: Member) -> History:
        alive = member.alive
        history = member.update()
        assert alive or member.ended, (member.name, self.errors(member))
        return history

    def _update(self) -> dict[int, int]:
        """Partition to the first offset that nobody has seen."""
        for member in self.members:
            seen = self._update_one(member).seen
            self.records.update(seen[self._judged.get(member.name, 0) :])
            self._judged[member.name] = len(seen)
        for index, offset in self.delivered.items():
            following = offset
            while (index, following) in self.records:
                following += 1
            self.delivered[index] = following
        return self.delivered
