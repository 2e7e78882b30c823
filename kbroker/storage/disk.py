"""The disk as a whole: two limits, kept by deleting old records and then by refusing new ones.

`kbroker.disk.bytes.max` bounds what the files of a log directory take,
`kbroker.disk.free.bytes.min` says what stays free on its file system; with several directories each
has these limits for itself (kbroker.storage.disks). Between two looks the data
plane may hand out the room that the last one found, so that a limit is not passed however fast
producers are (but by what the broker itself adds: the journal's next file, an index that grows).
Who finds too little left waits for the next look.

Where room runs short, what is dead already goes at once (files that wait for file.delete.delay.ms,
folders of deleted topics); then closed segments of topics that delete and do not compact, the one
whose newest record is oldest first, whichever topic it belongs to. Never a segment of an internal
topic, of a compacted one, or one that is being written to. Where that is not enough, produce is
refused (KAFKA_STORAGE_ERROR, see ext/produce) until there is room; fetch goes on, and so does what
the broker itself appends: commits. Where the file system is full all the same, that is told
in the same places (kbroker.storage.full).

Compaction writes segments anew before the old ones go. It asks for room for each group of them
first, and waits for the next look where there is too little; it goes on in any case, because it is
what frees space in a compacted topic. Where nothing else can go a limit may be passed by as much
as such a group takes, until its old segments go.

Not thread-safe: one thread's of its own (before that starts, the wiring's), but for `DiskLimits`,
which the control thread writes, and `await_room`, which is the cleaner's threads'.
"""

from __future__ import annotations

import contextlib
import heapq
import logging
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from kbroker.clock import Clock
from kbroker.errors import ClientError, DiskError
from kbroker.ext.log import Log
from kbroker.ext.log_space import oldest_closed
from kbroker.storage.dead_folders import folder_bytes
from kbroker.storage.folders import METADATA_FOLDER
from kbroker.storage.full import FULL, FullDisk
from kbroker.storage.log_directory import LogDirectory
from kbroker.storage.log_port import Key
from kbroker.storage.manager import LogManager

_LOG: Final = logging.getLogger("kbroker.storage")

CHECK_MS: Final = 250
# What grows without a client's doing, or shrinks, is seen after this.
_LOOK_MS_MAX: Final = 1_000
# Room that is made before it is needed: twice what came since the last look, within these bounds.
_MARGIN_BYTES_MIN: Final = 1 << 20
_MARGIN_SHARE_MAX: Final = 4  # of the limit, as its divisor
# What must have come free before produce is taken again, so that it does not flutter.
_RESUME_BYTES: Final = 1 << 20
_SEARCH_AGAIN_MS: Final = 2_000
_TELL_DELETED_MS: Final = 60_000
# Looks come every CHECK_MS; one that is this late is not waited for.
_AWAIT_LOOK_S: Final = 2.0
_FAILED_MS: Final = 10_000  # without limits, after a look that failed


class DiskLimits:
    """The limits that hold, in bytes: most that files may take (-1: any), least that stays free."""

    def __init__(self, bytes_max: int = -1, free_min: int = 0) -> None:
        self.bytes_max = bytes_max
        self.free_min = free_min

    def leave(self, directory: Path) -> int:
        """Most bytes that both leave to a data directory that has its file system to itself; -1
        for any. What others have put there is not looked at: it comes and goes."""
        bounds = [self.bytes_max] if self.bytes_max >= 0 else []
        if self.free_min > 0:
            with contextlib.suppress(OSError):  # the next look of the guard tells of it
                bounds.append(max(_file_system_bytes(directory) - self.free_min, 0))
        return min(bounds, default=-1)


class SpacePort(Protocol):
    """What is asked of the data plane (kbroker.ext.data_plane.DataPlane)."""

    def disk_bytes(self) -> int: ...
    def set_disk_room(self, room: int | None, refusing: bool) -> None: ...
    def disk_room(self) -> int: ...
    def take_disk_room(self, size: int) -> bool: ...
    def take_disk_wanted(self) -> int: ...


class Room(NamedTuple):
    """Bytes left under the limit that leaves fewest, that limit, and its name."""

    bytes: int
    limit: int
    name: str


class _Request:
    """Bytes that somebody waits for, until a look has been made with them in mind."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.granted = False
        self.abandoned = False
        self.answered = threading.Event()


class DiskGuard:
    """See the module. `spared` are topics of the broker itself; `directory` is the one that this is
    about, the first unless told."""

    def __init__(  # noqa: PLR0917
        self,
        limits: DiskLimits,
        logs: LogManager,
        port: SpacePort,
        spared: Iterable[str],
        clock: Clock,
        directory: LogDirectory | None = None,
    ) -> None:
        self.directory = directory or logs.main
        self._reached: str | None = None  # the limit for which produce is refused
        self._full = FullDisk(self.directory, port.disk_bytes)
        self._limits = limits
        self._logs = logs
        self._port = port
        self._spared = frozenset(spared)
        self._clock = clock
        self._limited = False
        self._used = -1  # not known yet
        self._resume_at = 0
        self._handed = -1
        self._look_at_ms = 0
        self._failed_until_ms = 0
        self._search_at_ms = 0
        self._deleted = [0, 0]  # segments, bytes: not told yet
        self._tell_at_ms = 0
        self._requests: deque[_Request] = deque()
        self._tell_lack_at_ms = 0

    @property
    def refused_for(self) -> str | None:
        """What is reached so that produce is refused, mostly a setting; None where it is taken."""
        return self._reached or (FULL if self._full.is_full else None)

    @property
    def refusing(self) -> bool:
        """Whether produce is refused."""
        return self.refused_for is not None

    def used_bytes(self) -> int:
        """What the files of the data directory take."""
        dead = self._logs.dead.bytes(self.directory)
        metadata = folder_bytes(self.directory.path / METADATA_FOLDER)
        moves = self._logs.moves
        arriving = 0 if moves is None else moves.arriving_bytes(self.directory)
        return self._port.disk_bytes() + dead + metadata + arriving

    def await_room(self, size: int) -> bool:
        """Room for bytes that the broker itself is about to write: whether there is so much, after
        another look where the last one left too little. Never called by the thread of the looks.
        """
        if self._port.take_disk_room(size):
            return True
        request = _Request(size)
        self._requests.append(request)
        request.abandoned = not request.answered.wait(_AWAIT_LOOK_S)
        if not request.granted:
            self._tell_lack(size)
        return request.granted

    def _tell_lack(self, size: int) -> None:
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._tell_lack_at_ms:
            self._tell_lack_at_ms = now_ms + _TELL_DELETED_MS
            _LOG.warning("compaction writes up to %d bytes for which the disk's limits leave no "
                         "room until the old segments go", size)  # fmt: skip

    def check(self) -> None:
        """One look: make room where it is short, tell the data plane how much there is."""
        taken = [self._requests.popleft() for _ in range(len(self._requests))]
        requests = [request for request in taken if not request.abandoned]
        granted = False
        self._full.look()
        try:
            granted = self._check(sum(request.size for request in requests))
        finally:
            for request in requests:
                request.granted = granted
                request.answered.set()

    def _check(self, asked: int) -> bool:
        """Whether there is room for what the broker itself asked for."""
        limits = self._limits
        if limits.bytes_max < 0 and limits.free_min <= 0:
            if self._limited:
                self._limited, self._used, self._handed = False, -1, -1
                self._end()
                self._port.set_disk_room(None, False)
            return True
        self._limited = True
        now_ms = self._clock.monotonic_ms()
        if now_ms < self._failed_until_ms:
            return True
        try:
            return self._look(now_ms, asked)
        except Exception as error:
            # Nobody may wait for a look that does not come: without one there is no limit.
            self._failed_until_ms, self._used, self._handed = now_ms + _FAILED_MS, -1, -1
            self._end()
            self._port.set_disk_room(None, False)
            if isinstance(error, OSError):
                raise DiskError(self.directory.path, error) from None
            raise

    def _look(self, now_ms: int, asked: int) -> bool:
        wanted = self._port.take_disk_wanted()
        early = now_ms < self._look_at_ms and not wanted and not asked
        if early and self._port.disk_room() == self._handed:
            return True  # no client has appended anything
        self._look_at_ms = now_ms + _LOOK_MS_MAX
        before = self._used
        room = self._room()
        margin = max(_margin(room, self._used - before if before >= 0 else 0), wanted)
        # What is cleaned may shrink: no more than a share of the limit is emptied on that account.
        margin += min(asked, room.limit // _MARGIN_SHARE_MAX)
        short = room.bytes <= 0 or room.bytes < wanted
        search = now_ms >= self._search_at_ms or (short and not self._reached)
        if room.bytes < margin and search:
            self._remove_dead()
            room = self._room()
            if room.bytes < margin:
                found = self._delete_oldest(margin - room.bytes)
                room = self._room()
                self._search_at_ms = now_ms if found else now_ms + _SEARCH_AGAIN_MS
        self._decide(room, wanted, asked)
        self._tell_deleted(now_ms)
        return room.bytes >= asked

    def _room(self) -> Room:
        self._used = self.used_bytes()
        found = []
        bytes_max, free_min = self._limits.bytes_max, self._limits.free_min
        if bytes_max >= 0:
            left = bytes_max - self._used
            found.append(Room(left, bytes_max, "kbroker.disk.bytes.max"))
        if free_min > 0:
            disk = os.statvfs(self.directory.path)
            left = disk.f_bavail * disk.f_frsize - free_min
            found.append(Room(left, free_min, "kbroker.disk.free.bytes.min"))
        return min(found)

    # ---- refusing

    def _decide(self, room: Room, wanted: int, asked: int) -> None:
        short = room.bytes <= 0 or room.bytes < wanted
        if not self._reached and short:
            self._reached = room.name
            self._resume_at = max(room.bytes, 0) + min(_RESUME_BYTES, room.limit // 16)
            _LOG.error(
                "%s=%d is reached and there is nothing left to delete: produce is refused with "
                "KAFKA_STORAGE_ERROR until there is room; fetch and commits go on",
                room.name,
                room.limit,
            )
        elif self._reached and room.bytes >= self._resume_at:
            self._end()
        # What is not granted is not kept back either: who asked writes all the same and asks again
        # at every look, for which producers would wait as long as a compaction takes.
        reserved = asked if room.bytes >= asked else 0
        self._handed = max(room.bytes - reserved, 0)
        self._port.set_disk_room(self._handed, self._reached is not None)

    def _end(self) -> None:
        if self._reached:
            self._reached = None
            _LOG.warning("there is room on the disk again: produce is taken")

    # ---- making room

    def _remove_dead(self) -> None:
        if not self.directory.online:
            return  # the names of what is to go may not be on the disk as they are seen
        for _, log in self._logs.of(self.directory):
            log.unlink_deleted(at_once=True)
        self._logs.dead.remove(None, self.directory)

    def _delete_oldest(self, wanted: int) -> int:
        """Delete closed segments, oldest first, until `wanted` bytes are free; bytes freed."""
        freed = 0
        heap = list(self._candidates())
        heapq.heapify(heap)
        while heap and freed < wanted:
            _, key, end = heapq.heappop(heap)
            log = self._logs.get(*key)
            if not isinstance(log, Log):
                continue
            before = log.size_bytes
            try:
                log.set_log_start_offset(end)
                log.delete_old_segments(self._clock.wall_ms())
                log.unlink_deleted(at_once=True)
            except (ClientError, DiskError) as error:
                _LOG.warning("no segment of %s-%d can go: %s", *key, error)
                continue
            freed += before - log.size_bytes
            self._deleted[0] += 1
            following = oldest_closed(log)
            if following is not None:
                heapq.heappush(heap, (following[0], key, following[1]))
        self._deleted[1] += freed
        return freed

    def _candidates(self) -> Iterator[tuple[int, Key, int]]:
        """(largest timestamp, partition, offset behind it) of the first closed segment of each."""
        for key, log in self._logs.of(self.directory):
            if key[0] not in self._spared and isinstance(log, Log):
                found = oldest_closed(log)
                if found is not None:
                    yield found[0], key, found[1]

    def _tell_deleted(self, now_ms: int) -> None:
        if self._deleted[0] and now_ms >= self._tell_at_ms:
            _LOG.info("deleted %d segments (%d bytes) to keep the disk's limits", *self._deleted)
            self._deleted = [0, 0]
            self._tell_at_ms = now_ms + _TELL_DELETED_MS


def _margin(room: Room, grown: int) -> int:
    return min(max(2 * grown, _MARGIN_BYTES_MIN), room.limit // _MARGIN_SHARE_MAX)


def _file_system_bytes(directory: Path) -> int:
    """Without what it reserves for root."""
    disk = os.statvfs(directory)
    return (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
