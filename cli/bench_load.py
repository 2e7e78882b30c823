"""What a measurement sends: how many records, of what, and when each is due."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

__all__ = ["Load", "Pace", "payload"]

_STEP_NS = 1_000_000  # with a rate, records are sent so often, or less often where one is due
_NAP_S = 0.25  # the longest sleep in one go, so that a limit of time is seen
_LETTERS = bytes(65 + number % 26 for number in range(256))


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent or read. records or duration_s None: no limit; rate None: as fast as can be."""

    topic: str
    size: int
    records: int | None
    duration_s: float | None
    rate: float | None = None
    keys: int = 0
    one_by_one: bool = False

    def over(self, records: int, begun_ns: int) -> bool:
        """Whether enough was done."""
        if self.records is not None and records >= self.records:
            return True
        limit_s = self.duration_s
        return limit_s is not None and time.monotonic_ns() - begun_ns >= limit_s * 1e9


class Pace:
    """When records are due, counted from the beginning: who is held up catches up, and what is
    late was due when it was due."""

    def __init__(self, load: Load, begun_ns: int) -> None:
        self._load = load
        self._begun_ns = begun_ns
        self._step_ns = max(_STEP_NS, 1e9 / load.rate) if load.rate else 0.0
        self._steps = 0

    def portion(self, sent: int, most: int) -> tuple[int, int]:
        """How many records to send now, at most so many, and since when they are due
        (monotonic, ns); none where it slept instead."""
        load = self._load
        if load.records is not None:
            most = min(most, load.records - sent)
        if load.rate is None:
            return most, time.monotonic_ns()
        due_ns = self._begun_ns + int(self._steps * self._step_ns)
        early_s = (due_ns - time.monotonic_ns()) / 1e9
        if early_s > 0:
            time.sleep(min(early_s, _NAP_S))
            if early_s > _NAP_S:
                return 0, due_ns
        ready = int(self._steps * self._step_ns * load.rate / 1e9) + 1 - sent
        if ready <= most:
            self._steps += 1
        return max(min(ready, most), 0), due_ns


def payload(size: int, count: int) -> list[bytes]:
    """Values of random capital letters, each different from the others."""
    source = random.Random(size)
    text = source.randbytes(max(2 * size, 1 << 16)).translate(_LETTERS)
    starts = source.sample(range(len(text) - size), count)
    return [text[start : start + size] for start in starts]
