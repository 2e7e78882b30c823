"""What `kbroker check` finds, a line each."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["FAILED", "FILES_LOW", "OK", "WARNING", "Finding", "files_text"]

OK, WARNING, FAILED = "ok", "warning", "FAILED"

FILES_LOW = 10_000


class Finding(NamedTuple):
    """What was looked at, how it is, and what to do."""

    check: str
    verdict: str
    text: str


def files_text() -> str:
    """What a broker needs open files for, and how it gets more."""
    return (
        f": a file for each segment and a socket for each client; `ulimit -n {FILES_LOW}`"
        " or more, LimitNOFILE= in a service"
    )
