"""A shard driven by hand: a clock that only the test moves, a log that is a list, every answer
counted. What `kbroker.group.runtime` does with logs and connections is done here with neither.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from kbroker.errors import ClientError, ErrorCode
from kbroker.ext.pulses import Pulses
from kbroker.group.classic.requests import HeartbeatRequest
from kbroker.group.codes import coordinator_code
from kbroker.group.outcome import CoordinatorRecord, Now, Outcome, Reply, Response
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from kbroker.group.topics import TopicInfo
from kbroker.group.unwritten import Unwritten

WALL_MS = 1_700_000_000_000

Operation = Callable[[Any, Callable[[Response], None], Now], Outcome]


class FakeTopics:
    """The topics of a cluster: name to number of partitions."""

    def __init__(self, partitions: Mapping[str, int] | None = None) -> None:
        self._topics: dict[str, TopicInfo] = {}
        self.version = 0
        for name, count in (partitions or {}).items():
            self.set(name, count)

    def set(self, name: str, partitions: int) -> None:
        """Create a topic or change its partitions; none deletes it."""
        self.version += 1
        if not partitions:
            del self._topics[name]
            return
        known = self._topics.get(name)
        topic_id = known.topic_id if known else self.version.to_bytes(16, "big")
        self._topics[name] = TopicInfo(name, topic_id, partitions)

    def by_name(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def by_id(self, topic_id: bytes) -> TopicInfo | None:
        found = (info for info in self._topics.values() if info.topic_id == topic_id)
        return next(found, None)

    def names(self) -> Iterable[str]:
        return self._topics.keys()


class Answer:
    """The answer to one request: may come once, never twice."""

    def __init__(self) -> None:
        self.response: Response | None = None
        self.told: Callable[[Answer], None] | None = None

    def __call__(self, response: Response) -> None:
        assert self.response is None, f"answered twice: {self.response}, {response}"
        self.response = response
        if self.told is not None:
            self.told(self)

    @property
    def came(self) -> bool:
        return self.response is not None

    @property
    def error(self) -> ErrorCode:
        return ErrorCode(self["error_code"])

    def __getitem__(self, name: str) -> Any:
        assert self.response is not None, "not answered yet"
        return self.response.get(name, 0 if name == "error_code" else None)

    def __repr__(self) -> str:
        return f"Answer({self.response})"


class Coordinator:
    """One shard with its log, `rooms` built on it in the order given."""

    def __init__(
        self,
        *rooms: Callable[[Shard], Any],
        settings: GroupSettings | None = None,
        topics: FakeTopics | None = None,
        now_ms: int = 1_000_000,
        log: Iterable[CoordinatorRecord] = (),
    ) -> None:
        """The `log` is replayed first, as at a start."""
        self.topics = topics or FakeTopics()
        settings = settings or GroupSettings()
        self.shard = Shard(0, settings, self.topics, Pulses(), Unwritten())
        self.rooms = [room(self.shard) for room in rooms]
        self.now_ms = now_ms
        self.log: list[CoordinatorRecord] = []
        self.append_error = ErrorCode.NONE
        self.fired = 0
        self.pulsed = 0
        """Heartbeats that the data plane answered."""
        for record in log:
            self.log.append(record)
            self.shard.replay(record)
        for outcome in self.shard.loaded(self.now):
            self.apply(outcome, None)

    @property
    def now(self) -> Now:
        return Now(WALL_MS + self.now_ms, self.now_ms)

    def configure(self, **changes: Any) -> None:
        """Change settings while running."""
        self.shard.settings = self.shard.settings._replace(**changes)

    def ask(self, operation: Operation, request: Any, answer: Answer | None = None) -> Answer:
        """Send a request."""
        answer = answer or Answer()
        try:
            outcome = operation(request, answer, self.now)
        except ClientError as error:
            outcome = Outcome(response={"error_code": error.code})
        self.apply(outcome, answer)
        return answer

    def beat(self, classic: Any, request: HeartbeatRequest, reply: Reply, now: Now) -> Outcome:
        """A classic heartbeat as the broker takes it: the data plane answers what it may, and
        the room `classic` the others."""
        who = request.group_id, request.member_id, request.instance_id, request.generation
        if self.shard.pulses.answers(*who, now.monotonic_ms):
            self.pulsed += 1
            return Outcome(response={"error_code": ErrorCode.NONE})
        outcome: Outcome = classic.heartbeat(request, reply, now)
        return outcome

    def apply(self, outcome: Outcome, answer: Answer | None) -> None:
        """Append, replay, answer: the contract of `Outcome`."""
        error = ErrorCode.NONE
        if self.append_error and outcome.records:
            error = coordinator_code(ClientError(self.append_error))
        if not error:
            self.append(outcome.records)
        if outcome.response is not None and answer is not None:
            answer({"error_code": error} if error else outcome.response)
        if outcome.then is not None:
            after = outcome.then(error)
            if after is not None:
                assert after.response is None
                self.apply(after, None)

    def append(self, records: Sequence[CoordinatorRecord]) -> None:
        """Write a batch and fold it into the state."""
        self.log.extend(records)
        for record in records:
            self.shard.replay(record)

    def pass_ms(self, duration_ms: int) -> None:
        """Let time go by; timers fire at their moments."""
        end_ms = self.now_ms + duration_ms
        while (due_ms := self.shard.timers.next_ms()) is not None and due_ms <= end_ms:
            self.now_ms = max(self.now_ms, due_ms)
            action = self.shard.timers.pop_due(self.now_ms)
            if action is not None:
                self.fired += 1
                self.apply(action(self.now), None)
        self.now_ms = end_ms

    def settle(self) -> None:
        """Fire what is due at this moment."""
        self.pass_ms(0)
