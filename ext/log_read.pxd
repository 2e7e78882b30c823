"""Read from the log of a partition without copying; find offsets by time and by leader epoch."""

from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log, Watermarks
from kbroker.ext.segment cimport Segment

ctypedef struct ReadSlice:
    # one reference, the caller's to drop with segment_unref; NULL: no bytes
    Segment* segment
    int fd
    int64_t position
    int64_t length                      # bytes; may cut the last batch
    Watermarks at                       # as they were when the slice was cut

ctypedef struct AbortedTxn:
    int64_t producer_id
    int64_t first_offset

ctypedef struct TimestampOffset:
    int64_t offset                      # -1: nothing found
    int64_t timestamp
    int32_t leader_epoch

# isolation: Isolation. LOG_OK (length may be 0), LOG_OFFSET_OUT_OF_RANGE (with out.at filled),
# LOG_STORAGE_ERROR.
cdef int log_read(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
                  ReadSlice* out) noexcept nogil
# Aborted transactions that touch the records of `slice`, read from `offset`. *out is malloc'ed
# (NULL when none), the caller frees.
cdef int log_aborted(Log* log, int64_t offset, const ReadSlice* slice, AbortedTxn** out,
                     int* count) noexcept nogil
cdef int log_offset_for_timestamp(Log* log, int64_t timestamp, TimestampOffset* out) noexcept nogil
cdef int log_offset_of_max_timestamp(Log* log, TimestampOffset* out) noexcept nogil
# Kafka's OffsetForLeaderEpoch: largest epoch <= `epoch` and where it ends; -1, -1 when not known.
cdef int log_end_offset_for_epoch(Log* log, int32_t epoch, int32_t* found,
                                  int64_t* end_offset) noexcept nogil
cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil     # -1: not known
