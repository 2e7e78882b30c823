"""Copies of a log's tables for Python (see log_listing.pxd)."""
from libc.stdlib cimport free, malloc

from kbroker.ext.log_state cimport LOG_HELD, LOG_NO_MEMORY, LOG_OK, log_lock_soon
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.producers cimport PRODUCER_BATCHES, Producer
from kbroker.ext.segment cimport Segment, segment_load_times


cdef bint rows_init(Rows* out, int32_t count, int32_t columns) noexcept nogil:
    """Allocate `count` rows, none of them filled. False: no memory."""
    out.columns = columns
    out.count = 0
    out.cells = <int64_t*> malloc(<size_t> max(count, 1) * columns * sizeof(int64_t))
    return out.cells != NULL


cdef int64_t* row_add(Rows* out) noexcept nogil:
    out.count += 1
    return out.cells + <int64_t> (out.count - 1) * out.columns


cdef void list_segments(Log* log, Rows* out) noexcept nogil:
    cdef Segment* s
    cdef int64_t* row
    cdef int32_t i
    for i in range(log.count):
        s = log.segments[i]
        segment_load_times(s)
        row = row_add(out)
        row[0] = s.base_offset
        row[1] = s.size
        row[2] = s.largest_timestamp


cdef int log_list_segments(Log* log, Rows* out) noexcept nogil:
    cdef int code = LOG_NO_MEMORY
    pthread_mutex_lock(&log.lock)
    if rows_init(out, log.count, 3):
        list_segments(log, out)
        code = LOG_OK
    pthread_mutex_unlock(&log.lock)
    return code


cdef int log_list_retired(Log* log, int32_t count, Rows* out) noexcept nogil:
    cdef int32_t i
    cdef int code = LOG_NO_MEMORY
    pthread_mutex_lock(&log.lock)
    if rows_init(out, count, 1):
        for i in range(max(0, log.retired_count - count), log.retired_count):
            row_add(out)[0] = log.retired[i].base_offset
        code = LOG_OK
    pthread_mutex_unlock(&log.lock)
    return code


cdef int log_list_epochs(Log* log, Rows* out) noexcept nogil:
    cdef int64_t* row
    cdef int32_t i
    cdef int code = LOG_NO_MEMORY
    pthread_mutex_lock(&log.lock)
    if rows_init(out, log.epochs.count, 2):
        for i in range(log.epochs.count):
            row = row_add(out)
            row[0] = log.epochs.entries[i].epoch
            row[1] = log.epochs.entries[i].start_offset
        code = LOG_OK
    pthread_mutex_unlock(&log.lock)
    return code


cdef void list_producer(const Producer* p, Rows* out) noexcept nogil:
    cdef int64_t* row = row_add(out)
    row[0] = p.id
    row[1] = p.epoch
    row[2] = -1
    if p.count:
        row[2] = p.batches[(p.first + p.count - 1) % PRODUCER_BATCHES].last_sequence
    row[3] = p.last_timestamp
    row[4] = p.coordinator_epoch
    row[5] = p.txn.first_offset


cdef int log_list_producers(Log* log, Rows* out) noexcept nogil:
    cdef Producer* p
    cdef int32_t capacity
    cdef int32_t i
    cdef int code = LOG_NO_MEMORY
    if not log_lock_soon(log):
        return LOG_HELD
    capacity = log.producers.capacity if log.producers != NULL else 0
    if rows_init(out, log.producers.count if capacity else 0, 6):
        for i in range(capacity):
            p = log.producers.slots[i]
            if p != NULL and p.epoch >= 0:
                list_producer(p, out)
        code = LOG_OK
    pthread_mutex_unlock(&log.lock)
    return code


cdef list rows_take(Rows* rows):
    cdef int32_t i
    cdef int32_t column
    try:
        return [
            tuple([rows.cells[<int64_t> i * rows.columns + column]
                   for column in range(rows.columns)])
            for i in range(rows.count)
        ]
    finally:
        free(rows.cells)
        rows.cells = NULL
