"""Listeners of `kbroker consume -G`: what is told on a terminal, and where partitions begin."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

import click

from kbroker.client import RebalanceListener, TopicPartition

if TYPE_CHECKING:
    from kbroker.client import Consumer

__all__ = ["Listener"]


class Listener(RebalanceListener):
    """group: a line on standard error for each change, None for none. begin_ms: partitions without
    a committed offset begin at the first record of this time or later."""

    def __init__(self, consumer: Consumer, group: str | None, begin_ms: int | None) -> None:
        self._consumer = consumer
        self._group = group
        self._begin_ms = begin_ms

    def _tell(self, what: str, partitions: Collection[TopicPartition]) -> None:
        if partitions and self._group is not None:
            names = ", ".join(f"{topic} [{index}]" for topic, index in sorted(partitions))
            click.echo(f"% group {self._group} {what}: {names}", err=True)

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        """Those that are new."""
        self._tell("assigned", partitions)
        if self._begin_ms is not None and partitions:
            committed = self._consumer.committed(partitions)
            new = [where for where, found in committed.items() if found is None]
            if new:
                self._consumer.seek_to_timestamp(self._begin_ms, new)

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        """Those that go."""
        self._tell("revoked", partitions)

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        """Those that others may own already."""
        self._tell("lost", partitions)
