"""The rooms of one partition, built on its shard: what operations are methods of."""

from __future__ import annotations

from typing import Any

from kbroker.group.classic.group import ClassicGroup
from kbroker.group.classic.protocol import ClassicProtocol
from kbroker.group.consumer.protocol import ConsumerProtocol
from kbroker.group.offsets import Offsets
from kbroker.group.shard import Shard
from kbroker.group.simple import SimpleGroup


class Rooms:
    """Not thread-safe: the control thread's."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.classic = ClassicProtocol(shard)
        self.consumer = ConsumerProtocol(shard)
        self.offsets = Offsets(shard)

    def unload(self) -> None:
        """The partition is given up: who waits is told so."""
        self.classic.unload()
        self.shard.timers.clear()

    def described_classic(self, group_id: str) -> dict[str, Any] | str:
        """A group as DescribeGroups tells it, or why there is none of that kind."""
        group = self.shard.groups.get(group_id)
        if isinstance(group, ClassicGroup | SimpleGroup):
            return group.described()
        if group is None:
            return f"Group {group_id} not found."
        return f"Group {group_id} is not a classic group."
