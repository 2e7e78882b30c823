"""Standard streams that are closed (`>&-`), or take nothing any more. Free of click."""

from __future__ import annotations

import os
import sys
from io import FileIO, TextIOWrapper
from typing import Final, TextIO

__all__ = ["closed", "forget_unwritten", "stand_in"]

#: Of those that fail when they are used.
closed: Final[list[str]] = []


def stand_in(*, silent: bool) -> None:
    """Puts something in the place of standard streams that this process was given none of, so that
    no file gets their numbers.

    What reads or writes there fails, as with a closed one; with silent, for a broker, it does not:
    nothing comes, and what is written is gone. So it is with standard error in any case.
    """
    reading, writing = (os.O_RDONLY, os.O_WRONLY) if silent else (os.O_WRONLY, os.O_RDONLY)
    if sys.stdin is None:
        closed.append("standard input")
        sys.stdin = _nowhere(reading, "r")
    if sys.stdout is None:
        closed.append("standard output")
        sys.stdout = _nowhere(writing, "w")
    if sys.stderr is None:
        sys.stderr = _nowhere(os.O_WRONLY, "w")


def _nowhere(way: int, mode: str) -> TextIO:
    """A stream of /dev/null, which fails where it was opened in the other way than `mode`."""
    return TextIOWrapper(FileIO(os.open(os.devnull, way), mode))


def forget_unwritten() -> bool:
    """Whether standard output holds what it could not write; that is given up, or the end of the
    process would fail by it once more."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return True
    return False
