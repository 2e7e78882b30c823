"""Partitions whose log the disk denied when they were created get it when the cause has passed.

A full disk takes files again when there is room, a process that ran out of descriptors has some
again later. Until then such a partition answers KAFKA_STORAGE_ERROR, and a coordinator of a topic
like that does not serve.

Folders of deleted partitions whose rename was refused are renamed then, too: one of them may be in
the way of a new partition.
"""

from __future__ import annotations

from typing import Final

from kbroker.api import publish
from kbroker.api.context import Services
from kbroker.operations import Completion, Steps

_FIRST_PAUSE_MS: Final = 1_000
_LAST_PAUSE_MS: Final = 30_000


class Recreations:
    """Tries again, with pauses that double. Owned by the control thread."""

    def __init__(self, services: Services) -> None:
        self._services, self._clock = services, services.clock
        self._due_ms = 0
        self._pause_ms = _FIRST_PAUSE_MS
        self._under_way = False

    def tick(self) -> None:
        """Begin to try again where it is time; called every second."""
        if self._under_way:
            return
        logs = self._services.logs
        if not logs.denied and not logs.unrenamed:
            self._due_ms, self._pause_ms = 0, _FIRST_PAUSE_MS
        elif self._clock.monotonic_ms() >= self._due_ms:
            self._under_way = True
            tried = self._services.operations.spawn(self._try(), "making up for refused disk work")
            tried.on_done(self._pause)

    def _try(self) -> Steps[None]:
        yield self._services.logs.rename_again()
        yield publish.create_denied(self._services)

    def _pause(self, _: Completion[None]) -> None:
        self._under_way = False
        self._due_ms = self._clock.monotonic_ms() + self._pause_ms
        self._pause_ms = min(2 * self._pause_ms, _LAST_PAUSE_MS)
