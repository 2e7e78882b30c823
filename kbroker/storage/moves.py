"""Partitions that move from one log directory to another while they are served.

In this order, so that a crash at any moment leaves one copy that the metadata names:

    1. a folder `TOPIC-PARTITION.HEX-future` in the other directory, with the topic's id;
    2. the segments copied into it and synced, a log opened there, which follows (ext/log_move.pxd);
    3. the log frozen, the rest copied and synced, the checkpoints of the other directory written
       with what they are to say of the partition: its recovery point (lest the journal there,
       which may have entries of an earlier stay, cuts what is on disk), log start, how far it is
       clean;
    4. the metadata say that the partition lives there (kbroker.api.moving: the control thread);
    5. the new folder gets the partition's name, the old one that of a deleted one; the log goes on
       in the new one and is free again.

Before 4 the next start removes the copy and begins anew (`LogManager.unfinished`), after it the
copy is the partition (kbroker.storage.homes). What goes wrong before 4 leaves the partition where
it is.

One thread moves one partition after the other. The table is the control thread's; the thread looks
into it and takes its work from a queue.
"""

from __future__ import annotations

import contextlib
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from kbroker.clock import Clock
from kbroker.errors import DiskError, KbrokerError
from kbroker.ext import log_move
from kbroker.ext.engine import name_thread
from kbroker.ext.log import Log
from kbroker.files import list_names, remove_folder, sync_directory
from kbroker.storage.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS, write_topic_id
from kbroker.storage.folders import DELETE_SUFFIX, FUTURE_SUFFIX, aside_name
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key, PartitionSpec
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.storage")

_FOLLOW_BYTES: Final = 64 << 20  # at a time
_NEAR_BYTES: Final = 256 << 10  # what is left then is copied while the log is frozen
_ROUNDS: Final = 20
_DURABLE_S: Final = 10.0
_POLL_S: Final = 0.002
_FINISH_S: Final = 60.0
_TRIES: Final = 3
_AGAIN_S: Final = 1.0
_LOOK: Final = "look"  # in the queue of what is wanted: one is not any more


class CancelledError(Exception):
    """The move is not wanted any more, or its partition is gone."""


class CleanerPort(Protocol):
    """What keeps compaction from a partition (kbroker.storage.cleaner)."""

    def pause(self, key: Key, check: Callable[[], object]) -> None: ...
    def resume(self, key: Key) -> None: ...
    def bring(self, key: Key, directory: LogDirectory) -> None: ...


class Move:
    """One partition on its way."""

    def __init__(
        self, spec: PartitionSpec, log: Log, source: LogDirectory, target: LogDirectory
    ) -> None:
        self.key = (spec.topic, spec.partition)
        self.spec = spec
        self.log = log
        self.source = source
        self.target = target
        self.name = spec.folder
        self.folder = target.path / aside_name(self.name, FUTURE_SUFFIX)
        self.future: Log | None = None
        self.copied_bytes = 0
        self.cancelled = False
        self.unwanted = False
        """It is not to begin anew at the next start either."""
        self.recorded = False
        """The metadata may say by now that the copy is the partition."""
        self.done = threading.Event()
        self.failed: str | None = None

    @property
    def size_bytes(self) -> int:
        """What is there by now."""
        future = self.future
        return self.copied_bytes if future is None else future.size_bytes

    @property
    def lag(self) -> int:
        """Offsets that are yet to be copied."""
        future = self.future
        behind = self.log.log_start_offset if future is None else future.log_end_offset
        return max(self.log.log_end_offset - behind, 0)

    def check(self) -> None:
        """Raises CancelledError."""
        if self.cancelled or not self.source.online or not self.target.online:
            raise CancelledError


Finish = Callable[[Move], None]
"""Has the metadata told and the folders exchanged, on the control thread; sets `Move.done`."""

Pace = Callable[[int, threading.Event], object]
"""Called with the bytes of each piece; may wait, until the event at most."""


class Moves:
    """See the module."""

    def __init__(
        self, logs: LogManager, cleaner: CleanerPort, clock: Clock, finish: Finish, pace: Pace
    ) -> None:
        """`finish` is called on the thread of the moves, `pace` with the bytes of each piece."""
        self._logs = logs
        self._cleaner = cleaner
        self._clock = clock
        self._finish = finish
        self._pace = pace
        self._moves: dict[Key, Move] = {}
        self._changing = threading.Lock()  # held by who takes one out
        self._wanted: queue.SimpleQueue[Move | str | None] = queue.SimpleQueue()
        self._waiting: deque[Move] = deque()  # the thread's: those that have a folder
        self._thread = threading.Thread(target=self._run, name="moves", daemon=True)
        self._stopping = threading.Event()

    # ---- the control thread's

    def get(self, key: Key) -> Move | None:
        """The move of a partition, if it is on its way."""
        return self._moves.get(key)

    def all(self) -> list[Move]:
        """Those on their way."""
        return list(self._moves.copy().values())

    def arriving_bytes(self, directory: LogDirectory) -> int:
        """What has been copied into a directory so far."""
        return sum(move.size_bytes for move in self.all() if move.target is directory)

    def begin(self, spec: PartitionSpec, target: LogDirectory) -> None:
        """Move a partition that is served. No disk is asked here."""
        key = (spec.topic, spec.partition)
        log, source = self._logs.get(*key), self._logs.homes[key]
        assert isinstance(log, Log)
        move = Move(spec, log, source, target)
        self._moves[key] = move
        if not self._thread.is_alive() and not self._stopping.is_set():
            self._thread.start()
        self._wanted.put(move)
        _LOG.info("moving %s from %s to %s", move.name, source, target)

    def cancel(self, key: Key) -> None:
        """It stays where it is, or is deleted."""
        with self._changing:
            move = self._moves.pop(key, None)
        if move is not None:
            move.unwanted = move.cancelled = True
            self._wanted.put(_LOOK)

    def ended(self, move: Move) -> None:
        """It is in its new place."""
        with self._changing:
            if self._moves.get(move.key) is move:
                del self._moves[move.key]

    def stop(self) -> None:
        """End; what is on its way begins anew after the next start."""
        self._stopping.set()
        for move in self.all():
            move.cancelled = True
        self._wanted.put(None)
        if self._thread.ident is not None:
            self._thread.join()

    # ---- the thread's

    def _run(self) -> None:
        name_thread("kbroker-moves")
        while not self._stopping.is_set():
            self._take(wait=not self._waiting)
            if not self._waiting:
                continue
            move = self._waiting.popleft()
            try:
                self._carry_out(move)
            except Exception:
                _LOG.exception("moving %s", move.name)
            if not self._stopping.is_set():
                self.ended(move)
        self._drop_unwanted()

    def _drop_unwanted(self) -> None:
        """At once: a start in between would begin them anew."""
        for move in [one for one in self._waiting if one.unwanted]:
            self._waiting.remove(move)
            self._remove(move)

    def _take(self, *, wait: bool = False) -> None:
        """Those that are wanted by now get their folders, by which the next start finds them: while
        another one is copied, too."""
        taken: list[Move] = []
        looked = False
        with contextlib.suppress(queue.Empty):
            while found := self._wanted.get(block=wait and not taken and not looked):
                looked = looked or found is _LOOK
                taken += [found] if isinstance(found, Move) else []
        self._waiting += taken
        self._drop_unwanted()
        for target in dict.fromkeys(move.target for move in taken):
            try:
                for move in taken:
                    if move.target is target and not move.cancelled:
                        self._make_folder(move)
                sync_directory(target.path)
            except DiskError as error:
                target.note(error)
                _LOG.error("%s", error)

    @staticmethod
    def _make_folder(move: Move) -> None:
        try:
            move.folder.mkdir(exist_ok=True)
        except OSError as error:
            raise DiskError(move.folder, error) from None
        write_topic_id(move.folder, move.spec.topic_id)

    def _carry_out(self, move: Move) -> None:
        """Copy until it is in its place, it is given up, or nobody wants it any more."""
        for attempt in range(_TRIES):
            try:
                self._cleaner.pause(move.key, move.check)
                self._copy(move)
                return
            except CancelledError:
                break
            except (KbrokerError, OSError, MemoryError) as error:
                if isinstance(error, DiskError) and error.path.startswith(str(move.folder)):
                    move.target.note(error)
                _LOG.error("moving %s to %s: %s", move.name, move.target, error)
                self._stopping.wait(_AGAIN_S * (attempt + 1))
            finally:
                self._let_go(move)
                self._cleaner.resume(move.key)
        self._remove(move)

    def _let_go(self, move: Move) -> None:
        """Of the log that is open in the folder; after the exchange that is the old one."""
        log_move.thaw(move.log)
        self._logs.incoming.pop(move.key, None)
        future, move.future = move.future, None
        if future is not None:
            future.close(clean=False)

    def _remove(self, move: Move) -> None:
        """What was copied; not at the end, when the next start does it and begins anew."""
        begins_anew = self._stopping.is_set() and not move.unwanted
        if begins_anew or move.recorded or not move.target.online:
            return
        gone = move.folder.with_name(aside_name(move.name, DELETE_SUFFIX))
        try:
            move.folder.rename(gone)
        except FileNotFoundError:  # it had none yet
            return
        except OSError as error:
            _LOG.error("cannot rename %s: %s", move.folder, error)
            return
        remove_folder(gone)

    def _copy(self, move: Move) -> None:
        move.check()
        self._make_folder(move)
        sync_directory(move.target.path)
        for name in list_names(move.folder):
            if name[0].isdigit():  # of an attempt before
                (move.folder / name).unlink()
        move.copied_bytes = 0

        def pace(size: int) -> None:
            move.check()
            move.copied_bytes += size
            self._take()
            self._pace(size, self._stopping)

        log_move.copy_segments(move.log, str(move.folder), pace)
        future = move.future = self._open(move)
        for _ in range(_ROUNDS):
            move.check()
            copied = log_move.follow(move.log, future, _FOLLOW_BYTES)
            if copied < _NEAR_BYTES:
                break
            self._pace(copied, self._stopping)
        future.flush()
        self._end(move, future)

    @staticmethod
    def _open(move: Move) -> Log:
        """It reads every batch that was copied, and rolls only where the log did."""
        config = dict(move.spec.config, segment_bytes=1 << 40, segment_ms=1 << 60,
                      segment_age_ms=1 << 60, segment_jitter_ms=0, flush_messages=1 << 60,
                      flush_ms=1 << 60, retention_ms=-1, retention_bytes=-1)  # fmt: skip
        topic, partition = move.key
        return Log(
            str(move.folder), topic, move.spec.topic_id, partition, config,
            log_start_offset=move.log.log_start_offset, clean=False, durable=False,
        )  # fmt: skip

    def _end(self, move: Move, future: Log) -> None:
        """The last moment: see the module, from 3 on. The log is flushed for the exchange, which
        waits for a flush that is under way, and the control thread waits for the exchange."""
        move.log.flush()
        log_move.freeze(move.log)
        self._await_durable(move)
        move.log.flush()
        log_move.follow(move.log, future, 1 << 60)
        if not log_move.match(move.log, future):
            raise DiskError(move.folder, "the copy is not what it is of; it is made anew")
        future.flush()
        if future.recovery_point < future.log_end_offset:
            raise DiskError(move.folder, "there is no room for what goes with the copy")
        future.unlink_deleted(at_once=True)
        self._checkpoint(move, future)
        move.check()
        self._finish(move)
        if not move.done.wait(_FINISH_S):
            move.cancelled = True  # whoever comes to it finds that
            move.done.wait()
        if move.failed is not None:
            raise CancelledError

    def _await_durable(self, move: Move) -> None:
        waited = threading.Event()
        until = self._clock.monotonic_ms() + _DURABLE_S * 1000
        while move.log.high_watermark < move.log.log_end_offset:
            move.check()
            if self._clock.monotonic_ms() > until:
                raise DiskError(move.source.path, "the disk takes too long for a move")
            waited.wait(_POLL_S)

    def _checkpoint(self, move: Move, future: Log) -> None:
        """What the directory's files say of the partition is on disk before it lives there."""
        self._logs.incoming[move.key] = (
            move.target,
            {
                RECOVERY_POINTS: future.recovery_point,
                LOG_START_OFFSETS: future.log_start_offset,
            },
        )
        self._logs.checkpoint_recovery_points(move.target)
        self._logs.checkpoint_log_starts(move.target)
        self._cleaner.bring(move.key, move.target)
