"""The groups and offsets of one partition of `__consumer_offsets`.

A shard is a fold over that partition's records: `replay` is the only way in for what a restart
must find again. Rooms (the classic protocol, the consumer protocol, committed offsets) are built
on a shard and register what they replay; operations are methods of the rooms.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kbroker.ext.pulses import Pulses
from kbroker.group.group import Group
from kbroker.group.migration import ClassicSide, ConsumerSide
from kbroker.group.outcome import CoordinatorRecord, Now, Outcome
from kbroker.group.settings import GroupSettings
from kbroker.group.timers import Timers
from kbroker.group.topics import Topics
from kbroker.group.unwritten import Unwritten
from kbroker.metadata.records.schema import Record

Replayer = Callable[[CoordinatorRecord], None]
Loaded = Callable[[Now], Outcome]


class Shard:
    """State shared by the rooms of a partition. Not thread-safe: the control thread's."""

    def __init__(
        self,
        partition: int,
        settings: GroupSettings,
        topics: Topics,
        pulses: Pulses,
        unwritten: Unwritten,
    ) -> None:
        """`pulses`: of members whose heartbeats the data plane answers; all shards share them, as
        they do what is unwritten."""
        self.partition = partition
        self.settings = settings
        self.topics = topics
        self.pulses = pulses
        self.unwritten = unwritten
        self.groups: dict[str, Group] = {}
        self.timers = Timers()
        self.classic: ClassicSide | None = None
        self.consumer: ConsumerSide | None = None
        self._replayers: dict[type[Record], Replayer] = {}
        self._on_loaded: list[Loaded] = []

    def replays(self, replayers: Mapping[type[Record], Replayer]) -> None:
        """Register what a room replays, by the type of the record's key."""
        self._replayers.update(replayers)

    def when_loaded(self, do: Loaded) -> None:
        """Register what is done once, after the whole partition was replayed: timers, repairs."""
        self._on_loaded.append(do)

    def replay(self, record: CoordinatorRecord) -> None:
        """Fold a record into the state; one of a kind that no room knows changes nothing."""
        replayer = self._replayers.get(type(record.key))
        if replayer is not None:
            replayer(record)

    def loaded(self, now: Now) -> list[Outcome]:
        """The state is whole; what the rooms want done about it."""
        return [do(now) for do in self._on_loaded]
