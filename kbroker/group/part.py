"""A part of a request that several slots answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from kbroker.errors import ErrorCode
from kbroker.group.outcome import Now, Outcome, Reply, Response
from kbroker.group.slot import Slot

if TYPE_CHECKING:
    from kbroker.group.rooms import Rooms

Operation = Callable[["Rooms", Reply, Now], Outcome]


class Call(NamedTuple):
    """A part of a request that several slots answer: `failed` makes its answer for an error."""

    group_id: str
    operation: Operation
    failed: Callable[[ErrorCode, str], Response]


class Part:
    """The answer of one call among several: kept until all are there."""

    def __init__(self) -> None:
        self.response: Response | None = None
        self.error: tuple[ErrorCode, str] | None = None

    def send(self, response: Response) -> None:
        self.response = response

    def send_when(self, log: Any, offset: int, response: Response, timeout_ms: int) -> None:
        self.response = response

    def send_when_all(
        self, places: list[tuple[Any, int]], response: Response, timeout_ms: int
    ) -> None:
        self.response = response

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        self.error = (code, code.message if message is None else message)


def keep_last(last: dict[int, Slot], slot: Slot) -> None:
    """Of each log directory the slot that was appended to last: its journal syncs in the order of
    appends."""
    place = 0 if slot.log is None else slot.log.directory
    before = last.get(place)
    if before is None or slot.appended > before.appended:
        last[place] = slot
