"""Requests about the end of a log that wait until it is durable.

With acks=1 a producer has its answer before its records are on disk. What it asks next about the
end of the log is to cover them, and nobody is to be shown what a power cut could take back: so the
request hurries the flush and waits for it. ListOffsets and Fetch do the same in the data plane.
"""

from __future__ import annotations

from typing import Final

from kbroker.api.context import Context
from kbroker.operations import Completion
from kbroker.storage.manager import LogPort

WAIT_MS: Final = 5_000
"""The deadline at least of an operation that waits so."""


def durable_up_to(context: Context, log: LogPort, offset: int) -> Completion[bool]:
    """Return when all below `offset` is on disk: whether it is, or the log cannot be written any
    more."""
    done: Completion[bool] = Completion()
    context.services.durable.when(log, offset, done.resolve)
    return done
