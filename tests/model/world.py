"""The coordinator as the clients find it: behind a network that loses connections, on a log of
which a crash takes away what had not been flushed.

As in the broker, an answer leaves when the log is durable up to where it stood when the answer was
given; answers to heartbeats do not wait.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from kbroker.errors import ErrorCode
from kbroker.ext.pulses import Pulses
from kbroker.group.outcome import CoordinatorRecord, Outcome, Response
from kbroker.group.settings import GroupSettings
from kbroker.group.shard import Shard
from kbroker.group.unwritten import Unwritten
from kbroker.metadata.records.classic_group import GroupMetadataKey
from tests.support.coordinator import Answer, Coordinator, FakeTopics, Operation


class Shadow:
    """A coordinator that does nothing but replay what the other one writes, batch by batch: what
    a restart at this moment would find."""

    def __init__(self, room: Callable[[Shard], Any], topics: FakeTopics) -> None:
        self.shard = Shard(0, GroupSettings(), topics, Pulses(), Unwritten())
        self.rooms = room(self.shard)
        self.touched: set[str] = set()
        """Groups with records that nobody has compared yet."""

    def fold(self, records: Iterable[CoordinatorRecord]) -> None:
        """Records that were written."""
        for record in records:
            self.shard.replay(record)
            group: str = getattr(record.key, "group", "") or getattr(record.key, "group_id", "")
            self.touched.add(group)


LOST = {"error_code": ErrorCode.NETWORK_EXCEPTION}
"""What a client sees whose connection is dropped."""


class World(Coordinator):
    """A coordinator with gated answers and restarts."""

    def __init__(
        self,
        room: Callable[[Shard], Any],
        settings: GroupSettings,
        topics: FakeTopics,
    ) -> None:
        self._room = room
        self.settings = settings
        self.open: dict[int, Answer] = {}
        self.held: list[tuple[Answer, Response]] = []
        self.flushed = 0
        self.appended = 0
        self.unsure: set[str] = set()
        """Groups whose last record was refused by the log, which therefore is behind them."""
        self.shadow = Shadow(room, topics)
        super().__init__(room, settings=settings, topics=topics)

    def request(self, operation: Operation, request: Any, answer: Answer, gated: bool) -> None:
        """Send a request; the answer comes by `answer.told`, now or at a flush."""
        self.open[id(answer)] = answer
        way_back = Held(self, answer) if gated else Direct(self, answer)
        self.ask(operation, request, way_back)

    def deliver(self, answer: Answer, response: Response) -> None:
        """An answer arrives, unless its connection is gone."""
        if self.open.pop(id(answer), None) is not None:
            answer(response)

    def flush(self) -> None:
        """The log is durable up to here."""
        self.flushed = len(self.log)
        held, self.held = self.held, []
        for answer, response in held:
            self.deliver(answer, response)

    def apply(self, outcome: Outcome, answer: Answer | None) -> None:
        """As the contract says; remembers which groups the log is behind of."""
        groups = {
            record.key.group
            for record in outcome.records
            if isinstance(record.key, GroupMetadataKey)
        }
        if self.append_error:
            self.unsure |= groups
        else:
            self.unsure -= groups
            self.appended += len(outcome.records)
        super().apply(outcome, answer)

    def append(self, records: Sequence[CoordinatorRecord]) -> None:
        """The shadow follows."""
        super().append(records)
        self.shadow.fold(records)

    def restart(self, crash: bool) -> None:
        """Stop and load the log; a crash takes what was not flushed. All connections are lost, with
        the answers that were on their way."""
        if crash:
            del self.log[self.flushed :]
        self.held.clear()
        dropped, self.open = self.open, {}
        self.log = compacted(self.log)
        self.append_error = ErrorCode.NONE
        self.unsure.clear()
        self.shadow = Shadow(self._room, self.topics)
        self.shadow.fold(self.log)
        super().__init__(
            self._room, settings=self.settings, topics=self.topics, now_ms=self.now_ms,
            log=self.log,
        )  # fmt: skip
        self.flushed = len(self.log)
        for answer in dropped.values():
            answer(LOST)


class Direct(Answer):
    """The way back of a request that does not wait for the disk."""

    def __init__(self, world: World, answer: Answer) -> None:
        super().__init__()
        self._world = world
        self._answer = answer

    def __call__(self, response: Response) -> None:
        super().__call__(response)
        self._world.deliver(self._answer, response)


class Held(Direct):
    """The way back of one that does."""

    def __call__(self, response: Response) -> None:
        Answer.__call__(self, response)
        self._world.held.append((self._answer, response))


def compacted(log: list[CoordinatorRecord]) -> list[CoordinatorRecord]:
    """The last record of each key, in their order, without tombstones."""
    last = {_key(record): at for at, record in enumerate(log)}
    return [
        record
        for at, record in enumerate(log)
        if last[_key(record)] == at and record.value is not None
    ]


def _key(record: CoordinatorRecord) -> tuple[Any, ...]:
    key = record.key
    return (type(key), *(getattr(key, field.name) for field in key.SCHEMA.fields))
