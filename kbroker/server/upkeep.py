"""What is done from time to time: retention, flushing of idle logs, checkpoints, expiry.

A thread runs each task when it is due. A task that fails is logged, once a minute for an error of
the disk that repeats, and runs again after its period. A task that returns UNFINISHED runs again as
soon as no other task is due: a stop never waits for all of its work.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import Final

from kbroker import runfile
from kbroker.clock import Clock
from kbroker.config import BrokerConfig
from kbroker.errors import DiskError
from kbroker.ext.engine import name_thread
from kbroker.ext.open_files import close_excess_files
from kbroker.storage.disk import CHECK_MS
from kbroker.storage.disks import DiskGuards
from kbroker.storage.leftovers import count_strays
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.server")

IDLE_FLUSH_MS: Final = 30_000
_FLUSH_CHECK_MS: Final = 5_000
_FOLDER_CHECK_MS: Final = 10_000
_FILES_CHECK_MS: Final = 1_000
_REMOVAL_S: Final = 0.2  # at a time
_STRAYS_CHECK_MS: Final = 60_000
_TELL_AGAIN_MS: Final = 60_000
UNFINISHED: Final = object()

Task = tuple[str, int, Callable[[], object]]


def threads_of(
    config: BrokerConfig, logs: LogManager, disk: DiskGuards, clock: Clock
) -> list[Upkeep]:
    """Two for each log directory: what waits for a disk that hangs holds up no other's. Produce
    waits for the looks at the disk's limits, which must not wait for a flush."""
    first_ms = config.integer("log.initial.task.delay.ms")
    return [
        one
        for at in logs.directories
        for one in (
            Upkeep("upkeep", tasks_of(config, logs, clock, at), clock, first_ms),
            Upkeep("disk", disk_tasks(disk, at), clock),
        )
    ]


def tasks_of(
    config: BrokerConfig, logs: LogManager, clock: Clock, directory: LogDirectory
) -> list[Task]:
    """(name, period in ms, what to do)."""
    flush_ms = min(config.integer("log.flush.scheduler.interval.ms"), _FLUSH_CHECK_MS)
    return [
        (
            "retention",
            config.integer("log.retention.check.interval.ms"),
            lambda: logs.retain(clock.wall_ms(), directory),
        ),
        (
            "flush",
            max(flush_ms, 1),
            lambda: logs.flush_what_is_due(clock.wall_ms(), IDLE_FLUSH_MS, directory),
        ),
        (
            "removal of deleted partitions",
            _FOLDER_CHECK_MS,
            lambda: _remove_dead(logs, clock, directory),
        ),
        ("closing of files above the bound", _FILES_CHECK_MS, close_excess_files),
        ("count of stray folders", _STRAYS_CHECK_MS, lambda: count_strays(directory)),
        (
            "producer expiry",
            config.integer("producer.id.expiration.check.interval.ms"),
            lambda: logs.expire_producers(clock.wall_ms(), directory),
        ),
        (
            "recovery point checkpoint",
            config.integer("log.flush.offset.checkpoint.interval.ms"),
            lambda: logs.checkpoint_recovery_points(directory),
        ),
        (
            "log start checkpoint",
            config.integer("log.flush.start.offset.checkpoint.interval.ms"),
            lambda: logs.checkpoint_log_starts(directory),
        ),
        (
            "high watermark checkpoint",
            config.integer("replica.high.watermark.checkpoint.interval.ms"),
            lambda: logs.checkpoint_high_watermarks(directory),
        ),
    ]


def _remove_dead(logs: LogManager, clock: Clock, directory: LogDirectory) -> object:
    return UNFINISHED if logs.dead.remove(clock.monotonic_ms(), directory, _REMOVAL_S) else None


def disk_tasks(disk: DiskGuards, directory: LogDirectory) -> list[Task]:
    """Of a directory; the first one's thread tells of all. What the run-file says of refused
    produce is true when the tasks begin."""
    looks = ("keeping the disk's limits", CHECK_MS, lambda: disk.check(directory.place))
    if directory.place:
        return [looks]
    told = disk.refused_for

    def tell() -> None:
        nonlocal told
        if disk.refused_for == told:
            return
        now = disk.refused_for
        try:
            runfile.tell_refused(directory.path, now)
        except OSError as error:
            raise DiskError(runfile.run_file(directory.path), error) from None
        told = now

    return [
        looks,
        ("telling of refused produce", CHECK_MS, tell),
    ]


class Upkeep:
    """A thread that runs tasks."""

    def __init__(self, name: str, tasks: list[Task], clock: Clock, first_ms: int = 0) -> None:
        self._name = name
        self._tasks = tasks
        self._clock = clock
        self._first_ms = first_ms
        self._tell_at: dict[tuple[str, str], int] = {}  # task and what it met: not before
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first round comes after `first_ms`, or a task's period if that is less."""
        self._thread.start()

    def stop(self) -> None:
        """End after the task at hand."""
        self._stopping.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        name_thread(f"kbroker-{self._name}")
        now_ms = self._clock.monotonic_ms()
        due = [now_ms + min(self._first_ms, period) for _, period, _ in self._tasks]
        while not self._stopping.wait(max(min(due) - self._clock.monotonic_ms(), 0) / 1000):
            now_ms = self._clock.monotonic_ms()
            for index, (name, period, do) in enumerate(self._tasks):
                if due[index] > now_ms or self._stopping.is_set():
                    continue
                unfinished = False
                try:
                    unfinished = do() is UNFINISHED
                except DiskError as error:
                    self._tell(name, str(error), now_ms)
                except Exception:
                    _LOG.exception("%s failed", name)
                wait_ms = 0 if unfinished else max(period, 1)
                due[index] = self._clock.monotonic_ms() + wait_ms

    def _tell(self, name: str, error: str, now_ms: int) -> None:
        """A full disk is told in one line, and not every time that a task meets it."""
        if now_ms >= self._tell_at.get((name, error), now_ms):
            self._tell_at = {key: at for key, at in self._tell_at.items() if at > now_ms}
            self._tell_at[name, error] = now_ms + _TELL_AGAIN_MS
            _LOG.error("%s failed: %s", name, error)
