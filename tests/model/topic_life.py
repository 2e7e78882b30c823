"""A model of topic life: the real control plane on a disk that a seed orders, slows and fails.

Clients create, grow, alter, delete and re-create topics and find coordinators, with timeouts; the
disk does its steps whenever the seed says; the broker is stopped or killed, and starts again from
what is on disk.

Invariants:
    a request has one answer, at its deadline at the latest;
    what was answered holds, after a stop and after a kill as well;
    when nothing is pending, each partition of the metadata is ready (offline where its disk failed)
    and the data plane has the same topics; folders are those of the metadata; no operation, change,
    disk job or name is left between two states.
"""

from __future__ import annotations

import errno
import random
from collections import Counter, deque
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kbroker.api import publish
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey
from kbroker.storage.disk_worker import DiskWorker
from kbroker.storage.log_port import Opening
from kbroker.storage.manager import State
from tests.support.control import ControlPlane, FakeRequest
from tests.support.ports import FakeLog

NAMES = [f"t{number}" for number in range(8)]
COORDINATORS = {"__consumer_offsets": 0, "__transaction_state": 1}
OK = {ErrorCode.NONE}
REFUSED = {
    ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.INVALID_PARTITIONS,
}  # fmt: skip
TIMED_OUT = ErrorCode.REQUEST_TIMED_OUT
SETTINGS = {"offsets.topic.num.partitions": "3", "transaction.state.log.num.partitions": "2"}


class BrokenInvariantError(AssertionError):
    """The seed and the step that broke it are in the message."""


class DrivenWorker(DiskWorker):
    """A disk worker whose turns are taken when the simulation says."""

    def __init__(self, name: str, posted: deque[Callable[[], None]]) -> None:
        super().__init__(name)
        self._thread = SimpleNamespace(join=lambda: None)  # type: ignore[assignment]
        self._post = posted.append  # `open` would start a thread

    def drive(self, rng: random.Random) -> bool:
        """One turn of a job, mostly of the first; whether there was any."""
        if not self._jobs:
            return False
        if rng.random() < 0.3:
            self._jobs.rotate(rng.randrange(len(self._jobs)))
        self._run_turn(self._jobs.popleft())
        return True


class Call:
    """A request under way: what it changes if it is carried out."""

    def __init__(self, request: FakeRequest, deadline_ms: int, take: Callable[[], None]) -> None:
        self.request = request
        self.deadline_ms = deadline_ms
        self.take = take


class Simulation:
    """One run of a seed."""

    def __init__(self, directory: Path, seed: int) -> None:
        self.directory = directory
        self.rng = random.Random(seed)
        self.seed = seed
        self.step_number = 0
        self.happened: Counter[str] = Counter()
        self.calls: list[Call] = []
        self.known: dict[str, int | None] = {}
        """By name, what was answered last: partitions, or None for deleted. A name about which a
        call is open or was cut off is not in it."""
        self.failing = False
        self.failed = False
        self.start()

    # ---- the broker

    def start(self) -> None:
        """Start on what is on disk, as kbroker.server.broker does."""
        self.posted: deque[Callable[[], None]] = deque()
        self.failed = self.failing = False
        self.control = ControlPlane(self.directory, SETTINGS)
        control, services = self.control, self.control.services
        services.post = self.posted.append
        control.logs._open_log = self.open_log
        control.logs.main.id = control.store.directory_id
        topics = control.store.image.topics.values()
        control.logs.start([spec for topic in topics for spec in publish.specs_of(services, topic)])
        for topic in topics:
            publish.offer_topic(services, topic)
        services.groups.open()
        services.transactions.open()
        self.workers = [DrivenWorker("metadata", self.posted), DrivenWorker("data", self.posted)]
        control.store.worker, control.logs.main.worker = self.workers
        self.check_answered()

    def open_log(self, opening: Opening) -> FakeLog:
        if self.failing and self.rng.random() < 0.2:
            self.failed = True
            raise OSError(errno.ENOSPC, "full")
        return FakeLog(opening)

    def stop(self) -> None:
        """SIGTERM: what was not answered is dropped."""
        self.control.services.operations.stop()
        for worker in self.workers:
            worker.close()
        while self.posted:
            self.posted.popleft()()
        self.control.logs.stop(1)
        self.end("stops")

    def kill(self) -> None:
        """kill -9: nothing runs any more."""
        self.end("kills")

    def end(self, how: str) -> None:
        self.happened[how] += 1
        for call in self.calls:
            call.take()
        self.calls.clear()
        self.control.close()
        self.start()

    # ---- clients

    def send(self, key: ApiKey, version: int, names: list[str], **fields: Any) -> None:
        timeout_ms = self.rng.choice([1, 100, 1_000, 30_000])
        deadline_ms = self.control.clock.monotonic_ms() + timeout_ms
        request = self.control.send(key, version, timeout=timeout_ms, **fields)
        self.happened[key.name] += 1

        def doubt() -> None:
            for name in names:
                self.known.pop(name, None)

        self.calls.append(Call(request, deadline_ms, doubt))

    def create(self) -> None:
        names = self.rng.sample(NAMES, self.rng.randint(1, 3))
        topics = [
            {"name": name, "num_partitions": self.rng.randint(1, 4), "replication_factor": 1}
            for name in names
        ]
        self.send(ApiKey.CREATE_TOPICS, 7, names, topics=topics)

    def grow(self) -> None:
        name = self.rng.choice(NAMES)
        topics = [{"name": name, "count": self.rng.randint(2, 6), "assignments": None}]
        self.send(ApiKey.CREATE_PARTITIONS, 3, [name], topics=topics)

    def delete(self) -> None:
        names = self.rng.sample([*NAMES, *COORDINATORS], self.rng.randint(1, 2))
        self.send(ApiKey.DELETE_TOPICS, 6, names, topics=[{"name": name} for name in names])

    def find(self) -> None:
        name, key_type = self.rng.choice(list(COORDINATORS.items()))
        request = self.control.send(
            ApiKey.FIND_COORDINATOR, 4, coordinator_keys=["g"], key_type=key_type
        )
        deadline_ms = self.control.clock.monotonic_ms() + 1_000
        self.happened["finds"] += 1
        self.calls.append(Call(request, deadline_ms, lambda: self.known.pop(name, None)))

    def alter(self) -> None:
        config = {"name": "retention.ms", "config_operation": 0,
                  "value": str(self.rng.randint(1, 10**6))}  # fmt: skip
        resource = {"resource_type": 2, "resource_name": self.rng.choice(NAMES),
                    "configs": [config]}  # fmt: skip
        request = self.control.send(
            ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource]
        )  # fmt: skip
        deadline_ms = self.control.clock.monotonic_ms() + 30_000
        self.calls.append(Call(request, deadline_ms, lambda: None))

    # ---- steps

    def run(self, steps: int) -> None:
        """Take so many steps, then come to rest."""
        for _ in range(steps):
            self.step_number += 1
            self.step()
        self.rest()

    def step(self) -> None:
        number = self.rng.random()
        if number < 0.62:
            self.rng.choice(self.workers).drive(self.rng)
        elif number < 0.72:
            self.control.clock.advance(self.rng.choice([1, 10, 200, 2_000]))
        elif number < 0.95:
            do = self.rng.choice([self.create, self.create, self.grow, self.delete, self.find,
                                  self.alter])  # fmt: skip
            do()
        elif number < 0.97:
            self.failing = self.rng.random() < 0.3
        elif number < 0.98:
            self.rest()
        elif number < 0.982:
            self.rng.choice([self.stop, self.kill])()
        self.settle()

    def settle(self) -> None:
        """Run what the control thread has to do now, and look at the answers."""
        control = self.control
        while True:
            while self.posted:
                self.posted.popleft()()
            while control.posted:
                control.posted.pop(0)()
            control.services.operations.run_due()
            if not control.services.operations.ready:
                break
            control.run_operations()
        now_ms = control.clock.monotonic_ms()
        control.services.groups.run_due(now_ms)
        control.services.transactions.run_due(now_ms)
        for call in list(self.calls):
            if call.request.answer is not None:
                self.calls.remove(call)
                self.take(call)
            elif now_ms >= call.deadline_ms:
                self.fail(f"no answer of {ApiKey(call.request.api_key).name} at its deadline")

    def take(self, call: Call) -> None:
        """What an answer says holds from here on, unless another call is open about the name."""
        call.take()
        answer = self.control.decoded(call.request)
        key = call.request.api_key
        for entry in answer.get("topics") or answer.get("results") or answer.get("responses") or ():
            name, code = entry.get("name"), ErrorCode(entry.get("error_code", 0))
            if name is None:
                continue
            if code not in OK | REFUSED | {TIMED_OUT}:
                self.fail(f"{ApiKey(key).name} of {name}: {code.name}")
            self.happened[code.name] += 1
            if code is ErrorCode.NONE:
                topic = self.control.store.image.topics.get(name)
                created = key == ApiKey.CREATE_TOPICS and topic is not None
                if created and topic.id == entry["topic_id"].bytes:
                    self.known[name] = len(topic)
                    self.check_ready(name, entry["num_partitions"])
                elif key == ApiKey.DELETE_TOPICS and topic is None:
                    self.known[name] = None

    # ---- invariants

    def fail(self, what: str) -> None:
        raise BrokenInvariantError(f"seed {self.seed}, step {self.step_number}: {what}")

    def check_ready(self, name: str, count: int | None = None) -> None:
        """The first partitions of a topic that was answered as created can be written to, unless
        their disk has failed; None: all of them."""
        topic = self.control.store.image.topics[name]
        if name not in self.control.data_plane.topics:
            self.fail(f"{name} was answered before it was offered")
        for index in list(topic.partitions)[:count]:
            state = self.control.logs.state(name, index)
            if state is State.CREATING or (state is State.OFFLINE and not self.failed):
                self.fail(f"{name}-{index} was answered as created, and is {state.value}")

    def check_answered(self) -> None:
        """After a start: what was answered, and not changed since, is so."""
        topics = self.control.store.image.topics
        for name, partitions in self.known.items():
            if (name in topics) != (partitions is not None):
                self.fail(f"{name}: {partitions} was answered, the metadata has {name in topics}")

    def rest(self) -> None:
        """Let everything come to its end, and look at all of it."""
        self.failing = False
        for _ in range(100_000):
            self.settle()
            driven = [worker.drive(self.rng) for worker in self.workers]
            if not any(driven) and not self.posted:
                break
        self.control.clock.advance(30_000)
        self.settle()
        self.happened["rests"] += 1
        self.check_rest()

    def check_rest(self) -> None:
        control, services = self.control, self.control.services
        left = {
            "calls": self.calls, "operations": len(services.operations),
            "names between two states": [*services.offering, *services.creating],
            "jobs": [len(worker) for worker in self.workers if len(worker)],
            "folders with steps": [worker._folders for worker in self.workers if worker._folders],
            "logs being made": control.logs._creating, "a change": services.changes._busy,
        }  # fmt: skip
        for what, found in left.items():
            if found:
                self.fail(f"left at rest: {what}: {found}")
        wanted = set()
        for name, topic in control.store.image.topics.items():
            self.check_ready(name)
            wanted |= {f"{name}-{index}" for index in topic.partitions}
        if control.data_plane.topics.keys() != control.store.image.topics.keys():
            self.fail("the data plane has other topics than the metadata")
        folders = {
            path.name for path in self.directory.iterdir()
            if path.is_dir() and not path.name.startswith("__cluster") and "." not in path.name
        }  # fmt: skip
        if not self.failed and folders != wanted:
            self.fail(f"folders: {sorted(folders ^ wanted)}")
        if services.groups.loading:
            self.fail("groups are being loaded for ever")


def run(directory: Path, seed: int, steps: int) -> Counter[str]:
    """Run a seed; what happened, how often. Raises BrokenInvariantError."""
    simulation = Simulation(directory, seed)
    simulation.run(steps)
    simulation.control.close()
    return simulation.happened
