"""Requests about the end of a log that wait until it is durable.

With acks=1 a producer has its answer before its records are on disk. What it asks next about the
end of the log is to cover them, and nobody is to be shown what a power cut could take back: so the
request hurries the flush and waits for it. ListOffsets and Fetch do the same in the data plane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kbroker.api.context import Context
from kbroker.errors import ErrorCode
from kbroker.operations import Completion, OperationTimeoutError, Steps
from kbroker.storage.manager import LogPort

WAIT_MS: Final = 5_000
"""The deadline at least of an operation that waits so."""
_LOGS_PER_SLICE: Final = 250


def durable_up_to(context: Context, ends: Sequence[tuple[LogPort, int]]) -> Steps[ErrorCode]:
    """Wait until each log is on disk up to its offset, or cannot be written any more, or the time
    is over: all together, as one flush is of all of them. Return what is wrong with those that are
    not."""
    waiting: list[tuple[LogPort, int]] = []
    for log, offset in ends:
        yield
        if offset > log.high_watermark:
            waiting.append((log, offset))
    for start in range(0, len(waiting), _LOGS_PER_SLICE):
        settled: Completion[bool] = Completion()
        some = waiting[start : start + _LOGS_PER_SLICE]
        context.services.durable.when_all(some, settled.resolve)
        try:
            yield settled
        except OperationTimeoutError:
            return ErrorCode.REQUEST_TIMED_OUT
    return ErrorCode.KAFKA_STORAGE_ERROR
