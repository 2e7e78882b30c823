"""What clients may be told, known from what they were told before. It never looks inside.

Everything is kept by group: the highest generation that any member was told of; who owns what in a
generation; what was committed, as far as it was answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol

from tests.model.formats import Partition


class BrokenPromiseError(AssertionError):
    """The coordinator broke a promise."""


class Holder(Protocol):
    """A member of the consumer protocol."""

    name: str
    held: set[tuple[bytes, int]]

    def may_be_gone(self) -> bool: ...


class Oracle:
    """See the module."""

    def __init__(self) -> None:
        self.generation: dict[str, int] = defaultdict(int)
        self._written: dict[str, int] = defaultdict(int)
        self._owners: dict[tuple[str, int], dict[Partition, str]] = {}
        self._meant: dict[str, tuple[int, dict[str, set[Partition]]]] = {}
        self._committed: dict[tuple[str, str, int], int] = {}
        self._holders: dict[tuple[str, bytes, int], Holder] = {}
        self.commits = 0
        self.generations = 0

    def joined(self, group: str, generation: int) -> None:
        """A member was told of a generation."""
        if generation < self.generation[group]:
            told = self.generation[group]
            raise BrokenPromiseError(f"{group}: generation {generation} after {told}")
        self.generation[group] = generation

    def meant(self, group: str, generation: int, given: dict[str, set[Partition]]) -> None:
        """A leader sends the assignments of a generation."""
        self._meant[group] = (generation, given)

    def assigned(
        self, group: str, generation: int, member_id: str, who: str, what: set[Partition]
    ) -> None:
        """A member was given partitions: those that the leader meant for it, and nobody else has
        them in this generation.

        `who` stays the same when a static member comes back under another id.
        """
        meant_in, given = self._meant.get(group, (-1, {}))
        if meant_in == generation and given.get(member_id, what) != what:
            told = f"{group} {generation}: {member_id} was given {sorted(what)}"
            raise BrokenPromiseError(f"{told} where {sorted(given[member_id])} was meant")
        if generation > self._written[group]:
            self._written[group] = generation
            self.generations += 1
            self._owners.pop((group, generation - 2), None)
        owners = self._owners.setdefault((group, generation), {})
        for partition in what:
            other = owners.setdefault(partition, who)
            if other != who:
                told = f"{group} {generation}: {partition}"
                raise BrokenPromiseError(f"{told} is {other}'s and {who}'s")

    def taken(self, group: str, who: Holder, what: Iterable[tuple[bytes, int]]) -> None:
        """A member of the consumer protocol takes partitions: whoever had them has given them up,
        or may have been fenced without knowing."""
        for partition in what:
            other = self._holders.get((group, *partition))
            if (
                other is not None
                and other is not who
                and partition in other.held
                and not other.may_be_gone()
            ):
                told = f"{group}: {partition} is {other.name}'s"
                raise BrokenPromiseError(f"{told} and was given to {who.name}")
            self._holders[group, *partition] = who

    def accepted(self, group: str, generation: int, known: int, what: str) -> None:
        """A request was accepted, of a member that said `generation` when `known` was the highest
        that anybody had been told."""
        if generation < known:
            told = f"{group}: {what} of generation {generation}"
            raise BrokenPromiseError(f"{told} accepted after {known}")

    def committed(self, group: str, offsets: dict[Partition, int]) -> None:
        """A commit was answered: it never goes back."""
        self.commits += 1
        for (topic, partition), offset in offsets.items():
            before = self._committed.get((group, topic, partition), -1)
            if offset < before:
                told = f"{group}: {topic}-{partition}"
                raise BrokenPromiseError(f"{told} went from {before} to {offset}")
            self._committed[group, topic, partition] = offset

    def fetched(self, group: str, offsets: dict[Partition, int]) -> None:
        """Committed offsets were read: none that was answered is lost."""
        for (topic, partition), offset in offsets.items():
            before = self._committed.get((group, topic, partition), -1)
            if offset < before:
                raise BrokenPromiseError(f"{group}: {topic}-{partition} is {offset}, was {before}")

    def last_commit(self, group: str, partition: Partition) -> int:
        """What a fetch gives at least."""
        return self._committed.get((group, *partition), -1)

    def restarted(self) -> None:
        """Generations that got no assignments are forgotten by a restart; others never."""
        self.generation.clear()
        self.generation.update(self._written)

    def topic_deleted(self, topic: str) -> None:
        """Its committed offsets are gone."""
        for key in [key for key in self._committed if key[1] == topic]:
            del self._committed[key]

    def group_deleted(self, group: str) -> None:
        """All that was known of it is void."""
        self.generation.pop(group, None)
        self._written.pop(group, None)
        self._meant.pop(group, None)
        for table in (self._owners, self._committed):
            for key in [key for key in table if key[0] == group]:
                del table[key]  # type: ignore[attr-defined]
