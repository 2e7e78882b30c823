"""Segments of a log at one moment, a reference to each: who has them reads their files while the
log goes on, and may find that retention has taken one (`Segment.deleted`)."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log
from kbroker.ext.segment cimport Segment

ctypedef struct Held:
    Segment** segments
    int64_t* sizes                      # of each, at that moment
    int32_t count

# The first `count` segments; the lock of the log is held. LOG_OK, or LOG_NO_MEMORY and none.
cdef int held_take(Log* log, int32_t count, Held* out) noexcept nogil
cdef void held_release(Held* held) noexcept nogil       # also of one that is all zeros
