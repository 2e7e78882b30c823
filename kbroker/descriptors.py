"""File descriptors of the process: the limit, and what it is enough for.

A connection takes a descriptor, and so does each segment that is written or read. Of the limit,
segments take at most a half: above it, a segment that is not in use is closed for another. The last
ones are kept from connections, for the log, the metadata and requests of operators.
"""

from __future__ import annotations

import os
import resource
from typing import Final

_SEGMENTS_SHARE: Final = 2
_SPARE: Final = 16  # for one change of the metadata and of folders
_UNLIMITED: Final = 1 << 30


def limit() -> int:
    """Return the soft limit."""
    return _count(resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def raise_limit() -> int:
    """Raise the soft limit to the hard one, and return it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (OSError, ValueError):  # a kernel that grants fewer than the hard limit says
            return _count(soft)
    return _count(hard)


def segments_max(descriptors: int) -> int:
    """Return how many segment files are kept open under a limit."""
    return max(descriptors // _SEGMENTS_SHARE, 1)


def arithmetic(descriptors: int, partitions: int) -> str:
    """Return what a limit is enough for, for a log line."""
    segments = segments_max(descriptors)
    more = ""
    if partitions > segments:
        more = f"; {partitions} partitions share them, and files are closed and opened again"
    return (
        f"{descriptors} open files: {segments} for segments, "
        f"{descriptors - segments} for connections and all else{more}"
    )


def has_spare() -> bool:
    """Return whether enough descriptors are left for the files of a change."""
    taken: list[int] = []
    try:
        taken.append(os.open(os.devnull, os.O_RDONLY))
        taken.extend(os.dup(taken[0]) for _ in range(_SPARE))
    except OSError:
        return False
    finally:
        for descriptor in taken:
            os.close(descriptor)
    return True


def _count(value: int) -> int:
    return _UNLIMITED if value == resource.RLIM_INFINITY else value
