"""The room that logs take (see log_space.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t
from libc.stdlib cimport free, malloc

from kbroker.ext.atomics cimport atomic_load_relaxed_i64, atomic_store_i64
from kbroker.ext.index cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES, Index
from kbroker.ext.log cimport Log as PyLog
from kbroker.ext.log_state cimport log_lock_soon
from kbroker.ext.posix cimport (
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
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
    if not log_lock_soon(log):
        return atomic_load_relaxed_i64(&log.seen_bytes)
    for i in range(log.count):
        bytes += segment_bytes(log, log.segments[i])
    for i in range(log.retired_count):
        bytes += log.retired[i].size
    bytes += atomic_load_relaxed_i64(&log.cleaned_bytes)
    pthread_mutex_unlock(&log.lock)
    atomic_store_i64(&log.seen_bytes, bytes)
    return bytes


cdef enum:
    COLUMNS = 13
    UNKNOWN = -1        # in the place of a log start


cdef bint survey_one(Log* log, int64_t* row) noexcept nogil:
    cdef int32_t i
    if not log_lock_soon(log):
        return False
    row[0] = log.log_start
    row[1] = log.hw
    row[2] = log.leo
    row[3] = 0
    for i in range(log.count):
        row[3] += log.segments[i].size
    row[4] = log.count
    row[5] = log.counts.records_in
    row[6] = log.counts.bytes_in
    row[12] = log.producers.count if log.producers != NULL else 0
    pthread_mutex_unlock(&log.lock)
    row[7] = atomic_load_relaxed_i64(&log.counts.bytes_out)
    row[8] = atomic_load_relaxed_i64(&log.counts.produces)
    row[9] = atomic_load_relaxed_i64(&log.counts.produces_failed)
    row[10] = atomic_load_relaxed_i64(&log.counts.fetches)
    row[11] = atomic_load_relaxed_i64(&log.counts.fetches_failed)
    return True


def survey(logs: list[PyLog]) -> list[tuple[int, ...] | None]:
    """Numbers of each log, see the stub; the GIL is free while locks are taken."""
    cdef Py_ssize_t count = len(logs)
    cdef Py_ssize_t i
    cdef Log** cores = <Log**> malloc(<size_t> max(count, 1) * sizeof(void*))
    cdef int64_t* rows = <int64_t*> malloc(<size_t> max(count, 1) * COLUMNS * sizeof(int64_t))
    if cores == NULL or rows == NULL:
        free(cores)
        free(rows)
        raise MemoryError("no memory for a survey of logs")
    try:
        for i in range(count):
            cores[i] = (<PyLog?> logs[i]).core
        with nogil:
            for i in range(count):
                if not survey_one(cores[i], rows + i * COLUMNS):
                    rows[i * COLUMNS] = UNKNOWN
        return [
            None if rows[i * COLUMNS] == UNKNOWN
            else tuple([rows[i * COLUMNS + column] for column in range(COLUMNS)])
            for i in range(count)
        ]
    finally:
        free(cores)
        free(rows)


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
