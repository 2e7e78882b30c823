"""The log cleaner, for kbroker.storage.cleaner: what of a log could be cleaned, and cleaning it.

A Cleaner belongs to one thread; `stop` may be called by any. All work is done without the GIL, but
that before each group of segments `room` is asked for what they take. The memory for the map of
keys is there only while a log is cleaned.
"""
import os
from typing import NamedTuple

from kbroker.errors import DiskError

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32
from kbroker.ext.cleaner_filter cimport FILTER_NO_CODEC
from kbroker.ext.cleaner_map cimport MAP_SLOT_BYTES, Hash, OffsetMap, map_hash
from kbroker.ext.cleaner_pass cimport (
    PASS_NO_CALLER,
    PASS_REPLACED,
    PASS_STOPPED,
    Pass,
    Survey,
    pass_clean,
    pass_free,
    pass_survey,
    throttle_init,
    throttle_set_rate,
)
from kbroker.ext.cleaner_pass cimport Throttle as ThrottleStruct
from kbroker.ext.endian cimport load_le64
from kbroker.ext.log cimport Log
from kbroker.ext.log_state cimport LOG_CLOSED, LOG_CORRUPT, LOG_NO_MEMORY, LOG_OK

IO_BYTES_MIN = 4096


class CleaningInterruptedError(Exception):
    """The log was closed or deleted, lost segments to retention, or `stop` was called: what was
    swapped in stays, and nothing else has changed."""


class UncleanableError(Exception):
    """The log holds what cannot be read: it stays as it is."""


class Cleanable(NamedTuple):
    """What of a compacted log could be cleaned."""

    first_dirty: int            # first offset that no cleaning has seen
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    overdue_ms: int             # how long max.compaction.lag.ms has been over
    min_ratio: float            # min.cleanable.dirty.ratio
    deletes: bool               # cleanup.policy has delete, too
    reset: str                  # why the checkpoint could not be taken, or ""


class Cleaned(NamedTuple):
    """What a cleaning did."""

    end_offset: int             # the log is clean up to here
    mapped_bytes: int
    mapped_records: int
    read_bytes: int
    read_records: int
    written_bytes: int
    written_records: int
    keyless_records: int        # removed: a compacted topic should not have any
    segments_before: int
    segments_after: int


_RESET = (
    "",
    "the checkpoint lies below the log start offset",
    "the checkpoint lies beyond the log end offset",
)


def survey(Log log not None, checkpoint, int64_t now_ms):
    """Cleanable, or None for a log that is not compacted or not in use any more."""
    cdef Survey found
    cdef int64_t at = -1 if checkpoint is None else checkpoint
    cdef int code
    if not log.core.cfg.cleanup_compact:
        return None
    with nogil:
        code = pass_survey(log.core, at, now_ms, &found)
    if code != LOG_OK:
        return None
    return Cleanable(found.first_dirty, found.first_uncleanable, found.clean_bytes,
                     found.cleanable_bytes, found.overdue_ms,
                     log.core.cfg.min_cleanable_ppb / 1e9, bool(log.core.cfg.cleanup_delete),
                     _RESET[found.reset])


def compacted(Log log not None):
    """cleanup.policy has compact."""
    return bool(log.core.cfg.cleanup_compact)


def key_hash(bytes key not None, bytes secret not None):
    """The 16 bytes by which the map knows a key."""
    cdef OffsetMap map
    cdef Hash hash
    cdef const uint8_t* p = key
    take_secret(&map, secret)
    map_hash(&map, p, len(key), &hash)
    return hash.a.to_bytes(8, "little") + hash.b.to_bytes(8, "little")


cdef int take_secret(OffsetMap* map, bytes secret) except -1:
    cdef const uint8_t* p = secret
    if len(secret) != 16:
        raise ValueError("a secret has 16 bytes")
    map.secret[0] = load_le64(p)
    map.secret[1] = load_le64(p + 8)
    return 0


cdef class Throttle:
    """Bytes that all cleaners together may read and write in a second."""

    cdef ThrottleStruct core

    def __cinit__(self, double bytes_per_second):
        throttle_init(&self.core)
        self.core.bytes_per_second = bytes_per_second

    def set_rate(self, double bytes_per_second):
        """It holds at once; what was taken at another rate is forgiven."""
        throttle_set_rate(&self.core, bytes_per_second)


cdef int ask_for_room(void* asker, int64_t bytes) noexcept with gil:
    return (<Cleaner> asker).ask(bytes)


cdef class Cleaner:
    """One at work; see the module. `room`: called with the bytes that are about to be written; it
    may wait until the disk has room for them."""

    cdef Pass core
    cdef OffsetMap map
    cdef int32_t stopped
    cdef Throttle throttle
    cdef object room
    cdef object failed                  # what it raised

    def __cinit__(self, Throttle throttle not None, *, int64_t map_bytes, double load_factor,
                  int64_t io_bytes, room=None):
        memset(&self.core, 0, sizeof(Pass))
        memset(&self.map, 0, sizeof(OffsetMap))
        take_secret(&self.map, os.urandom(16))
        self.throttle = throttle
        self.core.throttle = &throttle.core
        self.core.filter.map = &self.map
        self.core.output.fd = -1
        self.core.stop = &self.stopped
        self.room = room
        self.core.ask = ask_for_room
        self.core.asker = <void*> self
        self.core.map_slots = map_bytes // MAP_SLOT_BYTES
        self.core.load_factor = load_factor
        self.core.io_bytes = max(io_bytes, <int64_t> IO_BYTES_MIN)
        if self.core.map_slots * load_factor <= 1:
            raise ValueError("the map of keys would hold not even one")

    def __dealloc__(self):
        pass_free(&self.core)

    def stop(self):
        """End the cleaning at hand soon: it raises CleaningInterruptedError, as every later one."""
        atomic_store_i32(&self.stopped, 1)

    def clean(self, Log log not None, cleanable not None, int64_t now_ms):
        """Clean a log: Cleaned. CleaningInterruptedError, UncleanableError, DiskError, or
        MemoryError."""
        cdef int64_t first_dirty = cleanable.first_dirty
        cdef int64_t first_uncleanable = cleanable.first_uncleanable
        cdef int code
        if atomic_load_i32(&self.stopped):
            raise CleaningInterruptedError("stopped")
        self.core.log = log.core
        self.core.filter.now_ms = now_ms
        with nogil:
            code = pass_clean(&self.core, first_dirty, first_uncleanable)
        self.core.log = NULL
        if code != LOG_OK:
            raise self.failure(code, log)
        counts = self.core.filter.counts
        return Cleaned(
            self.core.end_offset, counts.mapped_bytes, counts.mapped_records, counts.read_bytes,
            counts.read_records, counts.written_bytes, counts.written_records, counts.keyless,
            self.core.segments_before, self.core.segments_after,
        )

    cdef int ask(self, int64_t bytes):
        try:
            if self.room is not None:
                self.room(bytes)
        except BaseException as error:
            self.failed = error
            return -1
        return 0

    cdef object failure(self, int code, Log log):
        if code == PASS_NO_CALLER:
            failed, self.failed = self.failed, None
            return failed
        directory = os.fsdecode(log.core.dir)
        if code == PASS_STOPPED or code == PASS_REPLACED or code == LOG_CLOSED:
            return CleaningInterruptedError(directory)
        if code == LOG_NO_MEMORY:
            return MemoryError("no memory to clean a log with")
        if code == FILTER_NO_CODEC:
            return UncleanableError(f"{directory}: a codec's library is not on this machine")
        if code == LOG_CORRUPT:
            return UncleanableError(f"{directory}: the log does not hold what was written")
        error = self.core.error or log.core.error_errno
        if error:
            return DiskError(directory, OSError(error, os.strerror(error)))
        return DiskError(directory, "no room, or no file descriptor, left")
