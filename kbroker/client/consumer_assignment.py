"""What a consumer is assigned and where it stands in it: the user's side of the fetcher.

`Assignment` is also what the consumer's group sees of it (kbroker.client.group.port.Host). It knows
the group only as somebody to ask for committed offsets.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kbroker.client.consumer_control import Control
from kbroker.client.errors import KafkaError
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_fetch import Fetcher
from kbroker.ext.client_fetch_parts import POSITION

__all__ = ["Assignment"]

Committed = Mapping[TopicPartition, OffsetAndMetadata | None]


class Assignment:
    """Partitions and positions. grouped: partitions begin at their committed offsets.

    asking: partitions whose committed offset has to be asked for. refused: the last question about
    some of them failed for good; they are asked about again, but not at once.
    """

    def __init__(self, fetcher: Fetcher, control: Control, *, grouped: bool) -> None:
        self.asking: set[TopicPartition] = set()
        self.refused = False
        self._fetcher = fetcher
        self._control = control
        self._grouped = grouped
        self._owned: frozenset[TopicPartition] = frozenset()
        self._stopped: set[TopicPartition] = set()
        self._ends: dict[TopicPartition, int] = {}

    # what the group asks

    def assigned(self) -> frozenset[TopicPartition]:
        """What the consumer owns now."""
        return self._owned

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        """The whole new assignment; partitions that stay keep position and records."""
        wanted = frozenset(TopicPartition(*where) for where in partitions)
        fetched = frozenset(TopicPartition(*where) for where in self._fetcher.assigned())
        for where in fetched - wanted:
            self._control.leave(where)
            self.asking.discard(where)
            self._ends.pop(where, None)
            self._fetcher.remove(*where)
        for where in sorted(wanted - fetched):
            if self._grouped:
                self._control.held.add(where)
                self.asking.add(where)
            self._fetcher.add(*where)
        for where in self._stopped & wanted:
            self._fetcher.stop(*where, False)
        self._stopped.clear()
        self._owned = wanted

    def repair(self) -> None:
        """Carry through a change that an exception has split: the fetcher gets the partitions that
        are owned, and committed offsets are asked for where no position is known."""
        self._fetcher.cork(False)
        self._stopped |= self._owned
        self.assign_from_group(self._owned)
        for where in self._owned if self._grouped else ():
            unknown = self._fetcher.state(*where)["offset"] < 0
            if unknown and where not in self._control.strategies:
                self._control.held.add(where)
        self.asking = self.asking | self._control.held

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        """They are about to be revoked: nothing of them is given out any more."""
        for where in self._owned.intersection(partitions):
            self._fetcher.stop(*where, True)
            self._stopped.add(where)

    def delivered(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Behind the last record given out, of each partition with a position."""
        return self._positions("position", "position_epoch")

    def finished(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the positions before the last call that returned records: the application has
        finished with the records of earlier calls, since it called again."""
        return self._positions("finished", "finished_epoch")

    def _positions(self, position: str, epoch: str) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for where in self._owned:
            state = self._fetcher.state(*where)
            if state[position] >= 0:
                found[where] = OffsetAndMetadata(state[position], leader_epoch=state[epoch])
        return found

    def wake(self) -> None:
        """Ends a wait in poll; any thread."""
        self._fetcher.wake()

    # committed offsets

    def begin_at(self, asked: Iterable[TopicPartition], told: Committed | KafkaError) -> None:
        """The group's answer for partitions that were in `asking`. An error, which passes by itself
        no more, is the user's, and the next poll asks again."""
        wanted = self._control.held.intersection(asked)
        if isinstance(told, KafkaError):
            self.asking |= wanted
            for where in sorted(wanted)[:1]:
                self.refused = True
                self._control.fail(where, told)
            return
        self._fetcher.cork(True)
        try:
            for where in wanted:
                found = told.get(where)
                self._control.held.discard(where)
                if found is not None:
                    self._fetcher.seek(*where, found.offset, found.leader_epoch)
                else:
                    self._fetcher.attend(*where, POSITION)
        finally:
            self._fetcher.cork(False)

    # positions

    def stop_at(self, where: TopicPartition, offset: int) -> None:
        """Raises NotAssignedError."""
        self._fetcher.stop_at(*where, offset)
        self._ends[where] = offset

    def left_s(self, deadline: float) -> float:
        """Until then (monotonic); 0 where every partition is read up to where it stops. A batch
        that reaches beyond that is given out whole."""
        if 0 < len(self._ends) == len(self._owned) and all(
            self._fetcher.state(*where)["position"] >= end for where, end in self._ends.items()
        ):
            return 0.0
        return max(deadline - monotonic(), 0.0)

    def seek(self, where: TopicPartition, offset: int, epoch: int) -> None:
        """Raises NotAssignedError, and ValueError for an offset below 0."""
        if offset < 0:
            raise ValueError(f"offset {offset} of {where}; offsets begin at 0")
        self._go(where, offset, epoch, None)

    def seek_by(self, where: TopicPartition, strategy: int) -> None:
        """EARLIEST, LATEST or a time in ms; found out when it is next needed."""
        self._go(where, -1, -1, strategy)

    def _go(self, where: TopicPartition, offset: int, epoch: int, strategy: int | None) -> None:
        """Tells the control thread before it is asked anew: what fails from then on is tried again,
        and an error of before is none."""
        self._fetcher.state(*where)  # NotAssignedError
        self._control.forget(where)
        self.asking.discard(where)
        if strategy is None:
            self._control.strategies.pop(where, None)
        else:
            self._control.strategies[where] = strategy
        self._fetcher.seek(*where, offset, epoch)
        self._control.pardon(where)
