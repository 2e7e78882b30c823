"""Transactional ids that go: how many at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

_RECORDS_MAX: Final = 1_000
_CHARS_MAX: Final = 100_000


def in_batches(names: Iterable[str]) -> Iterator[list[str]]:
    """Ids whose tombstones fit into a batch that every topic setting allows."""
    batch: list[str] = []
    size = 0
    for name in names:
        if batch and (len(batch) == _RECORDS_MAX or size + len(name) > _CHARS_MAX):
            yield batch
            batch, size = [], 0
        batch.append(name)
        size += len(name)
    if batch:
        yield batch
