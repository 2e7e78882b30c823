"""Starts on a directory as a crash leaves it, where one call that reads fails.

    python -m tests.faults.failing_starts WORDS TEMPLATE COPY KIND STEP

tests/support/failing.c stands in front of the C library. For each N (every STEP-th) a copy of
TEMPLATE is opened as a start of the broker does, while the Nth call of the kind fails. The start
may refuse, or leave partitions offline. What it serves is all that was there. Then it is opened
again without a fault, and all is there. Prints how many starts there were and how many lost
something, with a line for each on standard error.
"""

from __future__ import annotations

import errno
import logging
import mmap
import shutil
import struct
import sys
from pathlib import Path

from kbroker.errors import KbrokerError
from tests.faults.test_crash_states import Recovered

KINDS, PASS, CODE, HITS, STAY, CHANCE, DRAW = range(7)
CODES = (errno.EIO, errno.EMFILE, errno.ENOMEM)
Contents = dict[tuple[str, int], list[tuple[int, bytes | None]]]


def contents(found: Recovered) -> Contents:
    """What the partitions hold that are not offline."""
    return {
        key: found.values(*key)
        for key in found.logs.homes
        if key not in found.logs.offline and found.logs.get(*key) is not None
    }


def opened(folder: Path) -> Contents | None:
    """What a start serves; None where it refuses."""
    try:
        found = Recovered(folder)
    except (KbrokerError, OSError, MemoryError):
        return None
    try:
        return contents(found)
    except (KbrokerError, OSError, MemoryError):  # a client would get an error
        return {}
    finally:
        found.close()


def differing(found: Contents, expected: Contents) -> list[str]:
    """Partitions that do not hold what they should."""
    return [
        f"{key[0]}-{key[1]}: {len(values)} of {len(expected[key])} records"
        for key, values in found.items()
        if values != expected[key]
    ]


def main() -> None:
    """See the module."""
    words_file, template, copy = map(Path, sys.argv[1:4])
    kind, step = map(int, sys.argv[4:])
    logging.disable()
    with words_file.open("r+b") as file:
        words = mmap.mmap(file.fileno(), 8 * 7)

    def put(index: int, value: int) -> None:
        struct.pack_into("=q", words, 8 * index, value)

    shutil.copytree(template, copy)
    expected = opened(copy)
    assert expected and all(values for (topic, _), values in expected.items() if topic[:2] != "__")
    starts = lost = 0
    hits = 1
    while hits:
        shutil.rmtree(copy)
        shutil.copytree(template, copy, symlinks=True)
        put(PASS, starts * step)
        put(CODE, CODES[starts % len(CODES)])
        put(HITS, 0)
        put(KINDS, kind)
        served = opened(copy)
        put(KINDS, 0)
        (hits,) = struct.unpack_from("=q", words, 8 * HITS)
        starts += 1
        kept = opened(copy)
        wrong = differing(served or {}, expected)
        gone = differing(kept, expected) if kept is not None else ["all"]
        if wrong or gone or len(kept or ()) < len(expected):
            lost += 1
            sys.stderr.write(f"call {(starts - 1) * step}: served {wrong}, then {gone}\n")
    sys.stdout.write(f"{starts} {lost}\n")


if __name__ == "__main__":
    main()
