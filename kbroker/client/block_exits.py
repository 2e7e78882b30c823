"""Exits of `with` blocks that hold a consumer and a producer."""

from __future__ import annotations

__all__ = ["interrupted_producer"]

_CLOSING = frozenset({
    ("kbroker.client.producer", "__exit__"), ("kbroker.client.producer", "close"),
    ("kbroker.client.async_producer", "__aexit__"), ("kbroker.client.async_producer", "close"),
})  # fmt: skip


def interrupted_producer(error: BaseException) -> bool:
    """Return whether an exception came out of the close of a producer, which has given up records
    then. The traceback has it at whichever instruction a signal came."""
    trace = error.__traceback__
    while trace is not None:
        frame = trace.tb_frame
        if (frame.f_globals.get("__name__"), frame.f_code.co_name) in _CLOSING:
            return True
        trace = trace.tb_next
    return False
