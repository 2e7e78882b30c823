"""The room that logs take (see log_space.pxd)."""
from libc.stdint cimport int32_t

from kbroker.ext.index cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, Index
from kbroker.ext.log cimport Log as PyLog
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.segment cimport Segment, segment_largest


cdef int64_t index_bytes(const Index* x, int64_t expected) noexcept nogil:
    if x.writable:
        return x.mapped
    return x.entries * <int64_t> x.entry_bytes if x.entries >= 0 else expected


cdef int64_t segment_bytes(const Log* log, const Segment* s) noexcept nogil:
    cdef int64_t entries = s.size // max(log.cfg.index_interval_bytes, <int64_t> 1)
    return s.size + index_bytes(&s.offsets, entries * OFFSET_ENTRY_BYTES) \
        + index_bytes(&s.times, entries * TIME_ENTRY_BYTES)


cdef int64_t log_disk_bytes(Log* log) noexcept nogil:
    cdef int64_t bytes = 0
    cdef int32_t i
    pthread_mutex_lock(&log.lock)
    for i in range(log.count):
        bytes += segment_bytes(log, log.segments[i])
    for i in range(log.retired_count):
        bytes += log.retired[i].size
    pthread_mutex_unlock(&log.lock)
    return bytes


def oldest_closed(log: PyLog) -> tuple[int, int] | None:
    """(largest timestamp in ms, offset behind it) of the first segment, where that one may go to
    make room: it is closed, durable, and of a log that deletes and does not compact."""
    cdef Log* core = (<PyLog?> log).core
    cdef int64_t timestamp = 0
    cdef int64_t end = -1
    with nogil:
        pthread_mutex_lock(&core.lock)
        if core.count > 1 and core.cfg.cleanup_delete and not core.cfg.cleanup_compact \
                and not core.offline and not core.closed \
                and core.segments[1].base_offset <= core.hw:
            timestamp = segment_largest(core.segments[0])
            end = core.segments[1].base_offset
        pthread_mutex_unlock(&core.lock)
    return (timestamp, end) if end >= 0 else None
