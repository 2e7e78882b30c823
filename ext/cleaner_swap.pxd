"""Put a cleaned segment in the place of those it was made of: steps 3 to 5 of cleaner_pass."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.cleaner_output cimport Output
from kbroker.ext.log_state cimport Log
from kbroker.ext.segment cimport Segment

cdef enum:
    SWAP_REPLACED = -103                # segments went away meanwhile: nothing has changed

# `old`: n neighbours, as they were read, each of `sizes` bytes. The output is finished; it is gone
# afterwards, one way or the other. LOG_OK, SWAP_REPLACED or an error of the log; *error is the
# errno of a LOG_STORAGE_ERROR.
cdef int swap_segments(Log* log, Segment** old, const int64_t* sizes, int32_t n, Output* o,
                       int64_t now_ms, int* error) noexcept nogil
