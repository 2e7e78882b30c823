"""Topic churn: create, delete, re-create, grow, configure and fill topics, with a model of each."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.faults.chaos.workload import Workload
from tests.reference.crafted_batches import batch
from tests.support.oracle import Verdict, stored_values
from tests.support.processes import BrokerProcess
from tests.support.wire import (
    CREATE_PARTITIONS,
    CREATE_TOPICS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    INCREMENTAL_ALTER_CONFIGS,
    METADATA,
    PRODUCE,
    call_once,
)

NONE, UNKNOWN_TOPIC, TIMED_OUT, EXISTS, INVALID_PARTITIONS = 0, 3, 7, 36, 37
#: No leader, not the leader: the logs of a new topic are not there yet.
NO_LOG = (UNKNOWN_TOPIC, 5, 6)
PARTITIONS_MAX = 6
TIMEOUTS_MS = (500, 3_000, 15_000)
#: First word of the records that the check of all topics writes.
CHECK = b"check"
RETENTION, TOPIC = "retention.ms", 2
PAUSE_S, EARLY_S = 0.1, 0.05
#: Weights of requests to an existing topic: produce, create, delete, add partitions, configure.
LASTING, BRIEF = (10, 2, 3, 2, 2), (2, 1, 10, 2, 1)


class TopicModel:
    """The state of a topic as far as a client knows it.

    `possible` has the possible numbers of partitions; 0 is an absent topic. A request with an
    unknown outcome may take effect later. Until another change succeeds, error codes are compared
    with `possible` and do not narrow it. `shared`: other clients change the topic too.
    """

    def __init__(self, name: str, *, shared: bool = False) -> None:
        self.name, self.shared = name, shared
        self.possible = {0}
        self.settings: set[str | None] = {None}
        self.pending = False
        self.acked: dict[bytes, tuple[int, int]] = {}
        self.maybe: set[bytes] = set()
        self.faults: list[str] = []

    def created(self, code: int | None, partitions: int) -> None:
        if code == NONE:
            self._expect("created", lambda n: n == 0)
            self._become(partitions)
            self._forget()
        elif code == EXISTS:
            self._narrow("it exists", lambda n: n > 0)
        else:
            self._unknown("create", code, {partitions} if 0 in self.possible else set())

    def deleted(self, code: int | None) -> None:
        if code == NONE:
            self._expect("deleted", lambda n: n > 0)
            self._become(0)
            self._forget()
        elif code == UNKNOWN_TOPIC:
            self._narrow("delete: no such topic", lambda n: n == 0)
        else:
            self._unknown("delete", code, {0})
            self._doubt()

    def grown(self, code: int | None, partitions: int) -> None:
        if code == NONE:
            self._expect("grown", lambda n: 0 < n < partitions)
            self._become(partitions)
        elif code == INVALID_PARTITIONS:
            self._narrow(f"has {partitions} partitions", lambda n: n >= partitions)
        elif code == UNKNOWN_TOPIC:
            self._narrow("grow: no such topic", lambda n: n == 0)
        else:
            self._unknown("grow", code, {partitions} if self.possible != {0} else set())

    def configured(self, code: int | None, value: str) -> None:
        if code == NONE:
            self._expect("configured", lambda n: n > 0)
            self.settings = {value}
        elif code == UNKNOWN_TOPIC:
            self._narrow("configure: no such topic", lambda n: n == 0)
        else:
            self._unknown("configure", code, set())
            self.settings.add(value)

    def produced(self, code: int | None, value: bytes, partition: int, offset: int) -> None:
        if code == NONE:
            self._expect("a record is taken", lambda n: n > partition)
            if self.pending or self.shared:
                self.maybe.add(value)
            else:
                self.acked[value] = partition, offset
        elif code in (None, TIMED_OUT):
            self.maybe.add(value)
        elif code not in NO_LOG:
            self._fault(f"produce: error {code}")

    def judge(self, partitions: int, stored: list[dict[int, bytes]]) -> list[str]:
        """Return what is wrong with the topic as it is now; `stored`: values by offset."""
        wrong = []
        if not self.shared and partitions not in self.possible:
            wrong.append(f"{self.name} has {partitions} partitions, not {sorted(self.possible)}")
        places: dict[bytes, list[tuple[int, int]]] = {}
        for index, values in enumerate(stored):
            for offset, value in values.items():
                places.setdefault(value, []).append((index, offset))
        for value, found in places.items():
            if value.startswith(CHECK):
                continue
            if len(found) > 1:
                wrong.append(f"{self.name}: {value!r} is stored more than once: {found}")
            if not self.shared and value not in self.acked and value not in self.maybe:
                wrong.append(f"{self.name}: {value!r} at {found} is of a deleted topic")
        if 0 not in self.possible:
            wrong += [
                f"{self.name}: {value!r} was acknowledged at {place}, and is at {places.get(value)}"
                for value, place in self.acked.items()
                if place not in places.get(value, [])
            ]
        return wrong

    def _fault(self, text: str) -> None:
        self.faults.append(f"{self.name}: {text}")

    def _expect(self, what: str, fits: Callable[[int], bool]) -> None:
        if not self.shared and not any(map(fits, self.possible)):
            self._fault(f"{what}, though it had {sorted(self.possible)} partitions")

    def _narrow(self, what: str, fits: Callable[[int], bool]) -> None:
        self._expect(what, fits)
        if not self.pending and not self.shared:
            self.possible = set(filter(fits, self.possible)) or self.possible

    def _become(self, partitions: int) -> None:
        self.possible, self.pending = {partitions}, False

    def _unknown(self, what: str, code: int | None, more: set[int]) -> None:
        if code not in (None, TIMED_OUT):
            self._fault(f"{what}: error {code}")
        self.possible |= more
        self.pending = True

    def _forget(self) -> None:
        """Forget records and settings: the topic was deleted or created."""
        self.acked, self.maybe, self.settings = {}, set(), {None}

    def _doubt(self) -> None:
        """Allow for records and settings that were deleted with the topic."""
        self.maybe |= set(self.acked)
        self.acked = {}
        self.settings.add(None)


class TopicChurn(Workload):
    """A client that changes its own topics, and topics that other clients change too."""

    def __init__(
        self, name: str, broker: BrokerProcess, seed: str, shared: tuple[str, ...] = (),
        weights: tuple[int, ...] = LASTING,
    ) -> None:  # fmt: skip
        super().__init__(name, broker, seed)
        self._weights = weights
        self.topics = [TopicModel(f"{name}-{letter}") for letter in "abc"]
        self.topics += [TopicModel(one, shared=True) for one in shared]
        self._number = 0

    def step(self) -> None:
        topic = self.chance.choice(self.topics)
        if topic.possible == {0} and not topic.shared:
            self._create(topic)
        else:
            works = (self._produce, self._create, self._delete, self._grow, self._configure)
            self.chance.choices(works, self._weights)[0](topic)
        self.pause(PAUSE_S)

    def _change(
        self, api: int, version: int, body: dict[str, Any], timeout_ms: int, field: str
    ) -> int | None:
        """Return the error code of the one result; None for an unknown outcome."""
        begun = time.monotonic()
        answer = self.call(api, version, body, timeout_ms / 1000 + 2 * self.slack_s)
        took_s = time.monotonic() - begun
        if answer is None:
            self.pause(PAUSE_S)
            return None
        code = int(answer[field][0]["error_code"])
        self.counts[f"api {api}: {code}"] += 1
        late_s = took_s - timeout_ms / 1000
        if late_s > self.slack_s or (late_s < -EARLY_S and self._must_wait(api, code)):
            self.fault(f"API {api}: error {code} after {took_s:.1f} s, of {timeout_ms} ms")
        return code

    def _must_wait(self, api: int, code: int) -> bool:
        """Return whether an answer before the request's timeout is a fault."""
        has_timeout = api != INCREMENTAL_ALTER_CONFIGS
        return has_timeout and code == TIMED_OUT and not self.broker_ends.is_set()

    def _create(self, topic: TopicModel) -> None:
        partitions = self.chance.randint(1, PARTITIONS_MAX)
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        wanted = {"name": topic.name, "num_partitions": partitions, "replication_factor": 1}
        body = {"topics": [wanted], "timeout": timeout_ms}
        code = self._change(CREATE_TOPICS, 7, body, timeout_ms, "topics")
        topic.created(code, partitions)

    def _delete(self, topic: TopicModel) -> None:
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        body = {"topic_names": [topic.name], "timeout": timeout_ms}
        topic.deleted(self._change(DELETE_TOPICS, 5, body, timeout_ms, "responses"))

    def _grow(self, topic: TopicModel) -> None:
        partitions = min(PARTITIONS_MAX, max(topic.possible) + 1)
        timeout_ms = self.chance.choice(TIMEOUTS_MS)
        wanted = {"name": topic.name, "count": partitions, "assignments": None}
        body = {"topics": [wanted], "timeout": timeout_ms, "validate_only": False}
        code = self._change(CREATE_PARTITIONS, 3, body, timeout_ms, "results")
        topic.grown(code, partitions)

    def _configure(self, topic: TopicModel) -> None:
        value = str(self.chance.randint(1_000_000, 9_000_000))
        change = {"name": RETENTION, "config_operation": 0, "value": value}
        wanted = {"resource_type": TOPIC, "resource_name": topic.name, "configs": [change]}
        code = self._change(
            INCREMENTAL_ALTER_CONFIGS, 1, {"resources": [wanted]}, TIMEOUTS_MS[-1], "responses"
        )
        topic.configured(code, value)

    def _produce(self, topic: TopicModel) -> None:
        partition = self.chance.randrange(max(1, *topic.possible))
        self._number += 1
        value = f"{self.name} {self._number}".encode()
        parts = [{"index": partition, "records": batch(value)}]
        body = {"acks": -1, "timeout": 3_000,
                "topic_data": [{"name": topic.name, "partition_data": parts}]}  # fmt: skip
        answer = self.call(PRODUCE, 9, body)
        code, offset = None, -1
        if answer is not None:
            result = answer["responses"][0]["partition_responses"][0]
            code, offset = int(result["error_code"]), int(result["base_offset"])
            self.counts[f"produce: {code}"] += 1
        topic.produced(code, value, partition, offset)

    def judge(self) -> list[str]:
        """Compare partitions, records and settings of each topic with the answers."""
        wrong = []
        for topic in self.topics:
            wrong += topic.faults
            topic.faults = []
            count = partition_count(self.broker.port, topic.name)
            verdict = Verdict()
            stored = [
                stored_values(self.broker.port, topic.name, index, verdict)
                for index in range(count)
            ]
            wrong += verdict.torn + topic.judge(count, stored)
            setting = configured_retention(self.broker.port, topic.name) if count else None
            if count and not topic.shared and setting not in topic.settings:
                wrong.append(f"{topic.name}: {RETENTION} is {setting}, not {topic.settings}")
        return wrong


class BulkCreation(Workload):
    """The creation of one topic with many partitions."""

    def __init__(self, name: str, broker: BrokerProcess, seed: str, partitions: int) -> None:
        super().__init__(name, broker, seed)
        self.topic = TopicModel(name)
        self._partitions = partitions

    def run(self) -> None:
        self._guarded(self.step)
        self.session.close()

    def step(self) -> None:
        wanted = {"name": self.topic.name, "num_partitions": self._partitions,
                  "replication_factor": 1}  # fmt: skip
        body = {"topics": [wanted], "timeout": 60_000}
        answer = self.call(CREATE_TOPICS, 7, body, 60 + self.slack_s)
        code = None if answer is None else int(answer["topics"][0]["error_code"])
        self.counts[f"create: {code}"] += 1
        self.topic.created(code, self._partitions)

    def judge(self) -> list[str]:
        """Compare the existence of the topic with the answer."""
        count = partition_count(self.broker.port, self.topic.name)
        return self.topic.faults + self.topic.judge(count, [])


def partition_count(port: int, name: str) -> int:
    """Return how many partitions a topic has, 0 where there is none."""
    body = {"topics": [{"name": name}], "allow_auto_topic_creation": False}
    (topic,) = call_once(port, METADATA, 9, body)["topics"]
    return 0 if topic["error_code"] == UNKNOWN_TOPIC else len(topic["partitions"])


def configured_retention(port: int, name: str) -> str | None:
    """Return the topic's own retention.ms, None where it has none."""
    wanted = {"resource_type": TOPIC, "resource_name": name, "configuration_keys": [RETENTION]}
    (result,) = call_once(port, DESCRIBE_CONFIGS, 4, {"resources": [wanted]})["results"]
    assert result["error_code"] == 0, result
    (config,) = result["configs"]
    return str(config["value"]) if config["config_source"] == 1 else None
