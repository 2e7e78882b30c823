"""What clients of both protocols have in common: a life that asks, waits, and can end any time.

A life is a generator. It yields `Sleep` to let time pass and `Ask` to send a request; of the latter
it gets the answer, or None where the connection was lost or its patience was over.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.group.commits import Commit, PartitionCommit, TopicCommit
from kbroker.group.offsets import Fetch
from tests.model.formats import Partition
from tests.support.coordinator import Answer, Operation

if TYPE_CHECKING:
    from tests.model.simulation import Simulation


class Sleep(NamedTuple):
    """Nothing for a while."""

    ms: int


class Ask(NamedTuple):
    """A request; `gated`: its answer waits for the disk."""

    operation: Operation
    request: Any
    patience_ms: int = 40_000
    gated: bool = True


Step = Sleep | Ask
Life = Generator[Step, Any, None]
Asking = Generator[Step, Any, Any]

CONNECTION_LOST = ErrorCode.NETWORK_EXCEPTION


class Client:
    """One process that consumes. `instance_id` makes it a static member of its group."""

    def __init__(self, sim: Simulation, group: str, number: int, instance_id: str | None) -> None:
        self.sim = sim
        self.group = group
        self.number = number
        self.name = f"{group}-client{number}"
        self.instance_id = instance_id
        self.rng: Random = sim.rng
        self.topics: frozenset[str] = frozenset()
        self.owned: set[Partition] = set()
        self.positions: dict[Partition, int] = {}
        self._read_of: dict[Partition, bytes] = {}
        """Id of the topic that a position belongs to: one of the same name that came later is
        another, of which a member that has not heard of it must not commit."""
        self.works = False
        """It has its assignment, and nothing is about to change as far as it knows."""

    def life(self) -> Life:
        """From the start of the process to its end."""
        raise NotImplementedError

    def reborn(self) -> Client:
        """The process started again: it knows its settings, and nothing else.

        A static member subscribes to what it did before: whoever comes back otherwise gets its old
        assignment, of which the leader learns nothing (KIP-345).
        """
        again = self.made_again()
        if self.instance_id is not None:
            again.topics = self.topics
        return again

    def made_again(self) -> Client:
        """Another process of the same settings."""
        return type(self)(self.sim, self.group, self.number, self.instance_id)

    def end(self) -> None:
        """The process is gone."""
        self.drop_all()

    @property
    def calm(self) -> bool:
        """Clients behave themselves for now."""
        return self.sim.calm

    def chance(self, probability: float) -> bool:
        """Whether something happens that a client does when it does not behave."""
        return not self.calm and self.rng.random() < probability

    def choose_topics_once(self) -> None:
        """At the start of a process."""
        if not self.topics:
            self.choose_topics()

    def choose_topics(self) -> None:
        """Subscribe to some of what there is."""
        names = sorted(self.sim.topics.names())
        self.topics = frozenset(self.rng.sample(names, self.rng.randint(1, min(3, len(names)))))

    def drop_all(self) -> None:
        """It owns nothing any more, and knows it."""
        self.owned = set()
        self.positions.clear()
        self.works = False

    def ask(self, operation: Operation, request: Any, **options: Any) -> Asking:
        """Send a request and wait for its answer; None where none came."""
        answer: Answer | None = yield Ask(operation, request, **options)
        return None if answer is None or answer.error == CONNECTION_LOST else answer

    def fetch(self, partitions: Iterable[Partition], **who: Any) -> Asking:
        """Learn where to go on; False where that could not be learned."""
        wanted = sorted(partitions)
        if not wanted:
            return True
        ids = {name: self.sim.topic_id(name) for name, _ in wanted}
        topics = [(name, bytes(16), [index]) for name, index in wanted]
        request = Fetch(self.group, topics, **who)
        answer = yield from self.ask(self.sim.rooms.offsets.fetch, request)
        if answer is None or answer.error:
            return False
        found = {
            (topic["name"], one["partition_index"]): one["committed_offset"]
            for topic in answer["topics"]
            for one in topic["partitions"]
        }
        self.sim.oracle.fetched(self.group, found)
        self.positions.update({key: max(offset, 0) for key, offset in found.items()})
        self._read_of.update({key: ids[key[0]] for key in found})
        return True

    def commit(self, member_id: str, generation: int, known: int) -> Asking:
        """Consume a little and commit how far it came; the error, or None where no answer came."""
        there = [
            p
            for p in sorted(self.owned)
            if p in self.positions
            and self.sim.has(p)
            and self._read_of[p] == self.sim.topic_id(p[0])
        ]
        some = [p for p in there if self.rng.random() < 0.7]
        if not some:
            return ErrorCode.NONE
        offsets = {}
        for partition in some:
            self.positions[partition] += self.rng.randint(0, 9)
            offsets[partition] = self.positions[partition]
        topics = [
            TopicCommit(name, self.sim.topic_id(name), [PartitionCommit(index, offset)])
            for (name, index), offset in offsets.items()
        ]
        request = Commit(self.group, topics, 9, member_id, self.instance_id, generation)
        incarnations = {name: self.sim.topic_id(name) for name, _ in offsets}
        answer = yield from self.ask(self.sim.rooms.offsets.commit, request)
        if answer is None:
            return None
        if not answer.error:
            self.sim.oracle.accepted(self.group, generation, known, "a commit")
            kept = {
                p: offset
                for p, offset in offsets.items()
                if self.sim.has(p) and self.sim.topic_id(p[0]) == incarnations[p[0]]
            }
            self.sim.oracle.committed(self.group, kept)
        return answer.error
