"""Producer snapshots: the state of all producers of a partition, up to an offset, in a file.

`<20 digits>.snapshot`, big-endian: int16 version (1), uint32 CRC-32C of what follows, int32 count,
entries of 46 bytes: int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32
offset delta (of the last batch), int64 timestamp (ms), int32 coordinator epoch, int64 first offset
of the ongoing transaction (-1: none). The number in the name is the offset up to which the log was
folded in; only the last of a producer's batches is kept.

Written to a file of its name, not synced at a roll (the flush that follows does that): a crash may
leave one cut short or empty, its CRC says so, and the one before it serves, with more of the log
read again.

Functions that return int give 0 or an errno.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.producers cimport Producers

cdef enum:
    SNAPSHOT_BROKEN = -1

ctypedef struct Snapshots:              # offsets of the snapshot files of a folder, ascending
    int64_t* offsets
    int32_t count
    int32_t capacity

cdef int snapshots_add(Snapshots* list, int64_t offset) noexcept nogil
cdef void snapshots_free(Snapshots* list) noexcept nogil

# producers may be NULL: an empty snapshot.
cdef int snapshot_write(const char* dir, int64_t offset, const Producers* producers,
                        bint sync) noexcept nogil
# Replaces what `producers` holds, but for those expired at now_ms (expiration_ms, -1: none).
# SNAPSHOT_BROKEN: no snapshot of this format, or its CRC is wrong.
cdef int snapshot_read(const char* dir, int64_t offset, Producers* producers, int64_t now_ms,
                       int64_t expiration_ms) noexcept nogil
cdef int snapshot_unlink(const char* dir, int64_t offset) noexcept nogil
cdef int snapshot_sync(const char* dir, int64_t offset) noexcept nogil
