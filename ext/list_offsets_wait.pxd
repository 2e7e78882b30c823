"""Offsets of a ListOffsets response that are not durable yet: the response waits for them.

With durability=fsync a producer with acks=1 has its answer before its records are on disk, and the
high watermark is still below them. Whoever asks for the end of the log after that is to find them,
but nobody is to be shown what a power cut could take back. So the response is written with the
offsets as they will be, and leaves when the records are durable, which it has hurried.
"""
from libc.stdint cimport int8_t, int16_t, int64_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Request
from kbroker.ext.log_state cimport Log

ctypedef struct LateOffset:
    Log* log                        # a reference
    int64_t mark                    # durable when the high watermark is there
    uint8_t* error_at               # the partition's error code, in the response

ctypedef struct LateOffsets:        # zeroed: none
    LateOffset* items
    uint32_t count
    uint32_t capacity

# An offset that was written behind error_at: the end of the log, which is `mark` itself, or that of
# the record before it. False: no memory.
cdef bint late_add(LateOffsets* late, Log* log, int64_t mark, uint8_t* error_at) noexcept nogil
cdef void late_free(LateOffsets* late) noexcept nogil
# Leave the response, `written` bytes at `body`, to an operation; takes over what `late` has. At the
# end the offsets are as far as the reader may see by then. H_PENDING, or H_CLOSE.
cdef int late_answer(Request* request, LateOffsets* late, const uint8_t* body, uint32_t written,
                     int8_t isolation) noexcept nogil
