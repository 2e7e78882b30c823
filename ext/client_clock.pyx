"""Monotonic clock of the client.

Libraries that freeze time in tests replace the functions of Python's `time` module. The client's
deadlines use these functions, which read the operating system's clock.
"""
from kbroker.ext.clock cimport monotonic_ns as clock_ns


def monotonic() -> float:
    """Return the seconds of CLOCK_MONOTONIC, as time.monotonic() does."""
    return clock_ns() / 1e9


def monotonic_ns() -> int:
    """Return the nanoseconds of CLOCK_MONOTONIC, as time.monotonic_ns() does."""
    return clock_ns()
