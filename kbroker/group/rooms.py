"""The rooms of one partition, built on its shard: what operations are methods of."""

from __future__ import annotations

from kbroker.group.offsets import Offsets
from kbroker.group.outcome import CoordinatorRecord
from kbroker.group.shard import Shard


class Rooms:
    """Not thread-safe: the control thread's."""

    def __init__(self, shard: Shard) -> None:
        self.shard = shard
        self.offsets = Offsets(shard)

    def replay(self, record: CoordinatorRecord, producer_id: int = -1) -> None:
        """Fold a record that was loaded; commits of a transaction are pending until it ends."""
        if producer_id >= 0 and self.offsets.replay_pending(record, producer_id):
            return
        self.shard.replay(record)

    def end_transaction(self, producer_id: int, committed: bool) -> None:
        """A transaction's marker: its commits take effect or go."""
        self.offsets.end_transaction(producer_id, committed)
