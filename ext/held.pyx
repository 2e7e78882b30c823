"""Segments of a log at one moment (see held.pxd)."""
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbroker.ext.log_state cimport LOG_NO_MEMORY, LOG_OK
from kbroker.ext.segment cimport segment_ref, segment_unref


cdef int held_take(Log* log, int32_t count, Held* out) noexcept nogil:
    cdef int32_t i
    out.count = 0
    out.segments = <Segment**> malloc(max(count, 1) * sizeof(Segment*))
    out.sizes = <int64_t*> malloc(max(count, 1) * sizeof(int64_t))
    if out.segments == NULL or out.sizes == NULL:
        held_release(out)
        return LOG_NO_MEMORY
    for i in range(count):
        segment_ref(log.segments[i])
        out.segments[i] = log.segments[i]
        out.sizes[i] = log.segments[i].size
    out.count = count
    return LOG_OK


cdef void held_release(Held* held) noexcept nogil:
    cdef int32_t i
    for i in range(held.count):
        segment_unref(held.segments[i])
    free(held.segments)
    free(held.sizes)
    memset(held, 0, sizeof(Held))
