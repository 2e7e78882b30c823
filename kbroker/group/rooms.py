"""The rooms of one partition, built on its shard: what operations are methods of."""

from __future__ import annotations

from kbroker.group.classic.protocol import ClassicProtocol
from kbroker.group.consumer.protocol import ConsumerProtocol
from kbroker.group.offsets import Offsets
from kbroker.group.shard import Shard


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
