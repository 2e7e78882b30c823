"""A child process that dies, or fails, at every step of a cleaning, and of the recovery after it.

Run with tests/support/killer.c in front of the C library:

    python -m tests.reference.cleaner_crash KILLER FOLDER SEED LENGTH RECOVERIES STATES

FOLDER gets a log with a past of this SEED and LENGTH. For each step a copy of it is cleaned by a
child that is ended right before that step; then a child that recovers it is ended at each of its
steps too, as long as there are fewer than RECOVERIES; then the log is opened to the end and
compared: same end, same producers, the last value of each key, nothing left behind. Prints the
number of steps. The folders as the deaths left them are kept under STATES, unless that is empty.

With `canary` for RECOVERIES the result of a cleaning loses its end, and 1 is printed where that is
noticed. With an errno for RECOVERIES, written as `fail:ERRNO`, the step fails instead. A full disk
(ENOSPC) leaves the log as it was, and the next try ends well; any other error may take the log
offline.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from kbroker.errors import DiskError
from kbroker.ext.cleaner import Cleaner, Throttle, survey
from kbroker.ext.log import Log
from tests.reference.cleaner_history import (
    RETENTION_MS,
    UNLIMITED,
    Clean,
    End,
    History,
    Roll,
    random_steps,
    read_committed,
)
from tests.support.logs import open_log

DIED = 99
SETTINGS = {
    "cleanup_compact": 1,
    "cleanup_delete": 0,
    "delete_retention_ms": RETENTION_MS,
    "segment_bytes": 2500,
    "index_interval_bytes": 300,
}
STEPS_MAX = 5000
FINAL = {"fdatasync", "fsync", "rename"}


def in_child(do: Callable[[], None]) -> int:
    """Exit status of a child that does something."""
    pid = os.fork()
    if pid == 0:
        try:
            do()
        except BaseException as error:
            print(repr(error), file=sys.stderr)
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


class Crashes:
    def __init__(self, killer: ctypes.CDLL, folder: Path, seed: int, length: int) -> None:
        self.killer, self.folder = killer, folder
        killer.call_hit.restype = ctypes.c_char_p
        log = open_log(folder, **SETTINGS)
        history = History(log, folder)
        history.segment_bytes = SETTINGS["segment_bytes"]
        history.run(random_steps(seed, length, small_maps=False))
        history.run([Roll(), Clean(RETENTION_MS), *random_steps(seed + 1000, length)])
        # Nothing is open, so that all of it can be cleaned.
        history.run([*(End(producer, producer % 2 == 0) for producer in range(1, 5)), Roll()])
        self.now_ms = history.now_ms + 2 * RETENTION_MS
        self.checkpoint = history.checkpoint
        self.wanted = read_committed(log)
        self.end = log.log_end_offset
        self.producers = sequences(log)
        log.unlink_deleted(at_once=True)
        self.recovery_point = log.flush()
        log.close(clean=False)

    def clean(self, folder: Path, at: int) -> None:
        log = open_log(folder, clean=False, recovery_point=self.recovery_point, **SETTINGS)
        found = survey(log, self.checkpoint, self.now_ms)
        assert found is not None
        hands = Cleaner(Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)
        self.killer.die_at(at)
        hands.clean(log, found, self.now_ms)
        self.killer.die_at(-1)

    def recover(self, folder: Path, at: int) -> Log:
        self.killer.die_at(at)
        log = open_log(folder, clean=False, recovery_point=self.recovery_point, **SETTINGS)
        log.flush()
        self.killer.die_at(-1)
        return log

    def check(self, folder: Path) -> None:
        log = self.recover(folder, -1)
        left = [one.name for one in folder.iterdir()
                if one.suffix in {".cleaned", ".swap", ".deleted"}]  # fmt: skip
        assert not left, left
        assert log.log_end_offset == self.end, (log.log_end_offset, self.end)
        assert sequences(log) == self.producers, (sequences(log), self.producers)
        assert read_committed(log) == self.wanted
        # And it can be cleaned to the end, with the same result for a reader.
        found = survey(log, self.checkpoint, self.now_ms)
        assert found is not None
        hands = Cleaner(Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)
        hands.clean(log, found, self.now_ms)
        assert read_committed(log) == self.wanted
        log.close(clean=False)

    def clean_failing(self, folder: Path, at: int, error: int) -> bool:
        """Whether the step was reached. What the error leaves must be fit for use."""
        log = open_log(folder, clean=False, recovery_point=self.recovery_point, **SETTINGS)
        found = survey(log, self.checkpoint, self.now_ms)
        assert found is not None
        hands = Cleaner(Throttle(UNLIMITED), map_bytes=1 << 20, load_factor=0.9, io_bytes=4096)
        self.killer.fail_at(at, error)
        with contextlib.suppress(DiskError):
            hands.clean(log, found, self.now_ms)
        reached = self.killer.steps_taken() > at
        hit = self.killer.call_hit().decode()
        self.killer.die_at(-1)
        if log.offline is None:
            left = [one.name for one in folder.iterdir() if one.suffix in {".cleaned", ".swap"}]
            assert not left, left
            assert read_committed(log) == self.wanted
            again = survey(log, self.checkpoint, self.now_ms)
            assert again is not None
            hands.clean(log, again, self.now_ms)
            assert read_committed(log) == self.wanted
        else:
            # A failed sync is final; so is a swap that ends half way, until recovery ends it.
            assert error != errno.ENOSPC or hit in FINAL, (at, hit)
        log.close(clean=False)
        return reached

    def run_failing(self, error: int) -> int:
        for step in range(STEPS_MAX):
            state = self.folder.parent / f"failed-{step}" / self.folder.name
            shutil.copytree(self.folder, state)
            reached = self.clean_failing(state, step, error)
            self.check(state)
            shutil.rmtree(state.parent)
            if not reached:
                return step
        raise AssertionError("no end of steps")

    def run(self, recoveries: int, states: Path | None) -> int:
        for step in range(STEPS_MAX):
            state = self.folder.parent / f"died-{step}" / self.folder.name
            shutil.copytree(self.folder, state)
            status = in_child(lambda state=state, step=step: self.clean(state, step))
            assert status in {0, DIED}, (step, status)
            if states is not None:
                shutil.copytree(state, states / f"state{step}-0")
            for again in range(recoveries):
                if in_child(lambda again=again, state=state: self.recover(state, again)) != DIED:
                    break
            assert in_child(lambda state=state: self.check(state)) == 0, step
            shutil.rmtree(state.parent)
            if status == 0:
                return step
        raise AssertionError("no end of steps")


def notices_a_lost_end(crashes: Crashes) -> int:
    """A cleaning that nobody disturbs, whose newest records are then taken away."""
    assert in_child(lambda: crashes.clean(crashes.folder, -1)) == 0
    newest = [one for one in sorted(crashes.folder.glob("*.log")) if one.stat().st_size][-1]
    os.truncate(newest, newest.stat().st_size // 2)
    return int(in_child(lambda: crashes.check(crashes.folder)) == 1)


def sequences(log: Log) -> list[tuple[int, int, int]]:
    return [(one[0], one[1], one[2]) for one in log.producers()]


def main() -> None:
    killer, folder, seed, length, recoveries, states = sys.argv[1:]
    crashes = Crashes(ctypes.CDLL(killer), Path(folder), int(seed), int(length))
    if recoveries == "canary":
        print(notices_a_lost_end(crashes))
    elif recoveries.startswith("fail:"):
        print(crashes.run_failing(int(recoveries.removeprefix("fail:"))))
    else:
        print(crashes.run(int(recoveries), Path(states) if states else None))


if __name__ == "__main__":
    main()
