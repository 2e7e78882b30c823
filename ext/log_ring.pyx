"""Log lines of the data plane (see log_ring.pxd).

Slot i carries the sequence number that it waits for: i, i + LOG_LINES, ... when it is free for that
round, one more when it has been written. The last places of a ring that fills up are for errors:
clients can cause any number of other lines, and would have those of the broker itself lost.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64, atomic_cas_u64, atomic_load_relaxed_u64, atomic_load_u64,
    atomic_store_u64,
)
from kbroker.ext.connection cimport LOG_LINE_BYTES, LOG_LINES
from kbroker.ext.posix cimport snprintf


cdef void log_ring_init(LogRing* ring) noexcept nogil:
    cdef int index
    memset(ring, 0, sizeof(LogRing))
    for index in range(LOG_LINES):
        ring.lines[index].sequence = <uint64_t> index


cdef enum:
    FOR_ERRORS = 32


cdef inline bint has_room(LogRing* ring, uint64_t place) noexcept nogil:
    return <int64_t> (atomic_load_u64(&ring.lines[place % LOG_LINES].sequence) - place) >= 0


cdef LogLine* claim(LogRing* ring, int32_t level, uint64_t* place) noexcept nogil:
    """A slot to write into, NULL when the ring is full for lines of that level."""
    cdef uint64_t head = atomic_load_relaxed_u64(&ring.head)
    cdef LogLine* line
    cdef int64_t ahead
    if level < LOG_ERROR and not has_room(ring, head + FOR_ERRORS):
        atomic_add_relaxed_i64(&ring.dropped, 1)
        return NULL
    while True:
        line = &ring.lines[head % LOG_LINES]
        ahead = <int64_t> (atomic_load_u64(&line.sequence) - head)
        if ahead < 0:
            atomic_add_relaxed_i64(&ring.dropped, 1)
            return NULL
        if ahead == 0 and atomic_cas_u64(&ring.head, &head, head + 1):
            place[0] = head
            return line
        if ahead > 0:
            head = atomic_load_relaxed_u64(&ring.head)


cdef void net_log(Net* net, int32_t level, const char* text, int64_t a, int64_t b) noexcept nogil:
    cdef uint64_t place = 0
    cdef LogLine* line = claim(&net.log, level, &place)
    if line == NULL:
        return
    line.level = level
    snprintf(line.text, LOG_LINE_BYTES, text, <long> a, <long> b)
    atomic_store_u64(&line.sequence, place + 1)


cdef void net_log_text(Net* net, int32_t level, const char* text) noexcept nogil:
    cdef uint64_t place = 0
    cdef LogLine* line = claim(&net.log, level, &place)
    if line == NULL:
        return
    line.level = level
    snprintf(line.text, LOG_LINE_BYTES, "%s", text)
    atomic_store_u64(&line.sequence, place + 1)


cdef LogLine* log_ring_peek(LogRing* ring) noexcept nogil:
    cdef LogLine* line = &ring.lines[ring.tail % LOG_LINES]
    return line if atomic_load_u64(&line.sequence) == ring.tail + 1 else NULL


cdef void log_ring_pop(LogRing* ring) noexcept nogil:
    cdef LogLine* line = &ring.lines[ring.tail % LOG_LINES]
    atomic_store_u64(&line.sequence, ring.tail + LOG_LINES)
    ring.tail += 1
