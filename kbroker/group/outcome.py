"""What goes in and out of a coordinator.

An operation is a function of a shard, (request, reply, now) -> Outcome. It checks everything and
changes nothing that a restart must find again: that happens by its records, which are appended as
one batch, all or nothing, and then replayed. What lives in memory only (parked answers, timers,
a classic group between two rebalances) it may change at once, or in `then`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from kbroker.errors import ErrorCode
from kbroker.metadata.records.schema import Record
from kbroker.storage.log_port import LogPort

if TYPE_CHECKING:
    from kbroker.group.commits import CommitBatch


class Now(NamedTuple):
    """The time of an operation: wall time for what is stored, monotonic time for timers (ms)."""

    wall_ms: int
    monotonic_ms: int


Response = Mapping[str, Any]
"""An answer as kbroker.protocol encodes it: kio's field names, what is left out is the default."""

DEFERRED: Final[Response] = MappingProxyType({})
"""What a handler returns that has handed its request's answer on: it comes, or has come, by that
way. Told apart by identity."""


class Answer(Protocol):
    """The way back of one request. The first of its calls counts, each after it is a bug."""

    def send(self, response: Response) -> None:
        """Answer at once."""

    def send_when(self, log: Any, offset: int, response: Response, timeout_ms: int) -> None:
        """Answer when `log` is durable up to `offset`, with NOT_COORDINATOR when it never will be
        or is not in time."""

    def send_when_all(
        self, places: list[tuple[Any, int]], response: Response, timeout_ms: int
    ) -> None:
        """The same for several logs, each durable up to its offset."""

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        """Answer that the request failed as a whole."""


def send_when_durable(
    logs: Iterable[LogPort], answer: Answer, response: Response, timeout_ms: int
) -> None:
    """Answer when all that was appended to these logs is durable."""
    ends = [(log, log.log_end_offset) for log in logs]
    places = [(log, end) for log, end in ends if log.high_watermark < end]
    if not places:
        answer.send(response)
    elif len(places) == 1:
        answer.send_when(*places[0], response, timeout_ms)
    else:
        answer.send_when_all(places, response, timeout_ms)


Reply = Callable[[Response], None]
"""Answers one request, exactly once, now or later. The answer leaves when every record that the
shard had appended by then is durable."""


class CoordinatorRecord(NamedTuple):
    """A record of `__consumer_offsets` or `__transaction_state`; no value is a tombstone.

    `version` is the value's, -1 where there is none.
    """

    key: Record
    value: Record | None = None
    version: int = -1


class Outcome(NamedTuple):
    """What an operation wants done.

    records:  appended as one batch, then replayed in order.
    batch:    the records of an offset commit as they were built before: they are appended and
              replayed as one.
    producer: (id, epoch) of the transaction that the records belong to: they take effect with its
              end.
    response: for the request's own reply, once the records are durable; None where the reply was
              kept to be called later, or was called already.
    then:     called once, after the append and the replay with NONE, or with the error that kept
              the records from being appended, as clients are told it (nothing was replayed then).
              What it answers is done after it. Replies that it calls wait for the records like
              `response`.
    Where the append fails and there is a `response`, the request gets the error in its place.
    """

    records: Sequence[CoordinatorRecord] = ()
    response: Response | None = None
    then: Callable[[ErrorCode], Outcome | None] | None = None
    producer: tuple[int, int] | None = None
    batch: CommitBatch | None = None

    def telling(self, tell: Callable[[], None]) -> Outcome:
        """With what is to be told of it, once it took place."""
        before = self.then

        def then(error: ErrorCode) -> Outcome | None:
            if not error:
                tell()
            return None if before is None else before(error)

        return self._replace(then=then)


NOTHING: Final = Outcome()
