"""A log on a disk whose calls fail as a seed says; run by test_failing_calls.py in a process with
tests/support/failing.c in front of the C library.

    python -m tests.faults.seeded_disk WORDS FOLDER FIRST COUNT

Each seed draws which kinds of calls fail, how often, and with what; then it appends, rolls, flushes
and opens again. On a disk that works, the log must then hold what was acknowledged, each batch at
its offset, and nothing that was refused between them. Prints how many seeds there were, how many
of them lost something, and how many a reader that believes every append was acknowledged missed.
"""

from __future__ import annotations

import errno
import mmap
import random
import shutil
import struct
import sys
from pathlib import Path

from kbroker.errors import KbrokerError
from kbroker.ext import records
from kbroker.ext.log import Log
from tests.support.logs import batch, open_log, read_all

SETTINGS = {"segment_bytes": 1500, "index_interval_bytes": 200}
KINDS, PASS, CODE, HITS, STAY, CHANCE, DRAW = range(7)
CODES = (errno.EIO, errno.ENOSPC, errno.EDQUOT)
STEPS = 30


class Life:
    """One seed."""

    def __init__(self, words: mmap.mmap, folder: Path, seed: int) -> None:
        self.words, self.folder, self.chance = words, folder, random.Random(seed)
        self.acked: dict[int, int] = {}
        self.tried = 0
        self.log: Log | None = None
        self.seed = seed

    def set(self, index: int, value: int) -> None:
        struct.pack_into("=q", self.words, 8 * index, value)

    def fail(self) -> None:
        chance = self.chance
        self.set(CODE, chance.choice(CODES))
        self.set(DRAW, self.seed * 2654435761 % 2**62 + 1)
        self.set(CHANCE, chance.choice((5, 20, 100, 300)))
        self.set(KINDS, chance.choice((1, 2, 4, 8, 16, 32, 64, 127)))

    def open(self) -> None:
        self.log = open_log(self.folder, clean=False, **SETTINGS)

    def step(self) -> None:
        chance, log = self.chance, self.log
        if log is None or log.offline is not None:
            self.log = None
            self.open()
        elif (what := chance.random()) < 0.75:
            self.tried += 1
            data = batch(1, chance.choice((10, 120, 700)), 1000 + self.tried)
            base, _ = log.append(data, leader_epoch=self.tried // 10)
            assert base not in self.acked, f"offset {base} is given twice"
            self.acked[base] = self.tried
        elif what < 0.85:
            log.flush()
        elif what < 0.9:
            log.roll()
        else:
            self.log = None
            log.close(clean=False)

    def live(self) -> None:
        self.open()
        self.fail()
        for _ in range(STEPS):
            try:
                self.step()
            except (KbrokerError, OSError):
                continue
        self.set(KINDS, 0)
        self.log = None

    def found(self) -> dict[int, int]:
        """Offset to number, on a disk that works again."""
        log = open_log(self.folder, clean=False, **SETTINGS)
        found = {one.offset: one.timestamp - 1000 for one in records.read(read_all(log))}
        log.close(clean=False)
        return found


def main() -> None:
    name, root, first, count = sys.argv[1:]
    lost = missed = 0
    with Path(name).open("r+b") as file:
        words = mmap.mmap(file.fileno(), 56)
    for seed in range(int(first), int(first) + int(count)):
        folder = Path(root) / f"{seed}-0"
        folder.parent.mkdir(exist_ok=True)
        life = Life(words, folder, seed)
        life.live()
        found = life.found()
        if {offset: found.get(offset) for offset in life.acked} != life.acked:
            lost += 1
            print(f"seed {seed}: acked {life.acked}, found {found}", file=sys.stderr)
        missed += len(found) < life.tried
        shutil.rmtree(folder)
    print(count, lost, missed)


if __name__ == "__main__":
    main()
