"""Delayed disk calls of a broker, by tests/support/delays.c."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.native import Words, preloaded, shared_library

KINDS: Final = ("mkdir", "open", "size", "rename", "write", "sync", "unlink")
"""Kinds of calls; `size` is fallocate and truncate."""

_DELAYED, _ROOTS, _SEED, _CHANCE, _SHORTEST, _LONGEST, _UNDER_WAY, _COUNT, _TOTAL = range(9)
_CALLS: Final = 9
_EVERY_ROOT: Final = (1 << 62) - 1


@dataclass(frozen=True)
class DelayPlan:
    """Which calls are delayed, and for how long; below `root`, or below all roots."""

    seed: int = 0
    kinds: tuple[str, ...] = KINDS
    per_thousand: int = 1000
    shortest_ms: float = 10
    longest_ms: float = 2000
    root: Path | None = None


class Delays(Words):
    """Delays of calls on files below `roots`, in the broker that has `environment`.

    A broker may be started again with the same words: `renew` before that.
    """

    def __init__(self, folder: Path, roots: Iterable[Path]) -> None:
        super().__init__(folder / "delays", _CALLS + len(KINDS))
        self._library = shared_library("delays", folder)
        self._roots = [path.resolve() for path in roots]

    @property
    def environment(self) -> dict[str, str]:
        """Variables that put the library in front of the C library."""
        return {
            "LD_PRELOAD": preloaded(self._library),
            "KBROKER_TEST_DELAY": str(self.path),
            "KBROKER_TEST_DELAY_ROOTS": ":".join(map(str, self._roots)),
        }

    def begin(self, plan: DelayPlan) -> None:
        """Delay calls from now on as the plan says."""
        self[_SEED] = plan.seed % (1 << 62)
        self[_CHANCE] = plan.per_thousand
        self[_SHORTEST] = round(1000 * plan.shortest_ms)
        self[_LONGEST] = round(1000 * plan.longest_ms)
        self[_ROOTS] = _EVERY_ROOT
        if plan.root is not None:
            self[_ROOTS] = 1 << self._roots.index(plan.root.resolve())
        self[_DELAYED] = sum(1 << KINDS.index(kind) for kind in plan.kinds)

    def end(self) -> None:
        """End all delays; calls that wait go on at once."""
        self[_DELAYED] = 0

    @contextmanager
    def during(self, plan: DelayPlan) -> Iterator[None]:
        """Delay calls within the block."""
        self.begin(plan)
        try:
            yield
        finally:
            self.end()

    def renew(self) -> None:
        """Forget the waiting calls of a broker that was killed."""
        self[_UNDER_WAY] = 0

    @property
    def under_way(self) -> int:
        """How many calls wait at this moment."""
        return self[_UNDER_WAY]

    @property
    def count(self) -> int:
        """How many calls have been delayed."""
        return self[_COUNT]

    @property
    def total_s(self) -> float:
        """Seconds of all delays that have ended."""
        return self[_TOTAL] / 1e6

    def calls(self) -> dict[str, int]:
        """Calls of each kind below the roots so far, delayed or not."""
        return {kind: self[_CALLS + index] for index, kind in enumerate(KINDS)}
