"""Timers of a shard: named moments at which something is to be done, on the caller's clock."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Hashable
from typing import Final

from kbroker.group.outcome import Now, Outcome

Action = Callable[[Now], Outcome]

_STALE_MIN: Final = 64


class Timers:
    """A heap in which a timer that was moved or cancelled stays as a stale entry until it is due.

    Moving a timer to a later moment, which every heartbeat does, pushes nothing: the entry in the
    heap comes up early, and is put back.
    """

    def __init__(self) -> None:
        self._due: dict[Hashable, tuple[int, Action]] = {}
        self._queued: dict[Hashable, int] = {}
        self._heap: list[tuple[int, int, Hashable]] = []
        self._order = itertools.count()

    def __len__(self) -> int:
        return len(self._due)

    def __contains__(self, name: Hashable) -> bool:
        return name in self._due

    def schedule(self, name: Hashable, at_ms: int, action: Action) -> None:
        """Do `action` at `at_ms` (monotonic); a timer of that name is replaced."""
        self._due[name] = (at_ms, action)
        queued = self._queued.get(name)
        if queued is None or at_ms < queued:
            self._push(name, at_ms)

    def cancel(self, name: Hashable) -> bool:
        """Forget a timer; False where there is none."""
        return self._due.pop(name, None) is not None

    def when(self, name: Hashable) -> int | None:
        """When a timer is due (ms)."""
        found = self._due.get(name)
        return None if found is None else found[0]

    def next_ms(self) -> int | None:
        """When to look again: no timer is due before."""
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Action | None:
        """The action of a timer that is due, earliest first, and forget it; None when none is."""
        while self._heap and self._heap[0][0] <= now_ms:
            queued_ms, _, name = heapq.heappop(self._heap)
            if self._queued.get(name) != queued_ms:
                continue
            del self._queued[name]
            found = self._due.get(name)
            if found is None:
                continue
            if found[0] <= now_ms:
                del self._due[name]
                return found[1]
            self._push(name, found[0])
        return None

    def delay(self, ms: int) -> None:
        """All that is to come comes so much later."""
        self._due = {name: (at_ms + ms, action) for name, (at_ms, action) in self._due.items()}
        self._rebuild()

    def clear(self) -> None:
        """Forget all."""
        self._due.clear()
        self._queued.clear()
        self._heap.clear()

    def _push(self, name: Hashable, at_ms: int) -> None:
        self._queued[name] = at_ms
        heapq.heappush(self._heap, (at_ms, next(self._order), name))
        if len(self._heap) > 2 * len(self._due) + _STALE_MIN:
            self._rebuild()

    def _rebuild(self) -> None:
        """Drop stale entries, so that timers that come and go do not pile up."""
        self._heap = [(at_ms, next(self._order), name) for name, (at_ms, _) in self._due.items()]
        self._queued = {name: at_ms for at_ms, _, name in self._heap}
        heapq.heapify(self._heap)
