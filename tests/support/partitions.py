"""Logs that a LogManager creates and deletes at once, as its workers have no threads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kbroker.storage.log_port import LogPort, PartitionSpec
from kbroker.storage.manager import LogManager


def created(logs: LogManager, specs: Sequence[PartitionSpec]) -> list[LogPort | None]:
    """Create partitions; their logs in order, None for one that is offline."""
    logs.create(specs).result()
    return [logs.get(spec.topic, spec.partition) for spec in specs]


def deleted(
    logs: LogManager, topic: str, partitions: Iterable[int], due_ms: int
) -> list[LogPort]:
    """Delete partitions of a topic; the logs that have ended."""
    ended: list[LogPort] = []
    logs.delete([(topic, partitions, due_ms)], ended.append).result()
    return ended
