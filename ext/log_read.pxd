"""Read from the log of a partition without copying. Everything here is thread-safe."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log, Watermarks
from kbroker.ext.segment cimport Segment
from kbroker.ext.txn_index cimport AbortedTxn

ctypedef struct ReadSlice:
    Segment* segment                    # one reference, to drop with segment_unref; NULL: no bytes
    int fd                              # the segment's, open as long as the reference is held
    int64_t position
    int64_t length                      # bytes; may cut the last batch
    Watermarks at                       # as they were when the slice was cut

# From the batch that holds `offset` (or the next one), at most max_bytes, within one segment and
# never beyond the bound of the isolation (enum Isolation). A slice may cut its last batch, but not
# its first: when that one is larger than max_bytes it comes whole with min_one, and not at all
# without. LOG_OK (with segment NULL and length 0 when there is nothing yet), or
# LOG_OFFSET_OUT_OF_RANGE below log start and above leo; out.at is always filled.
cdef int log_read(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
                  ReadSlice* out) noexcept nogil
# As log_read, for who is not to wait for the disk: LOG_HELD when somebody stands there with it.
cdef int log_read_soon(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
                       ReadSlice* out) noexcept nogil
# LOG_HELD as above. Aborted transactions that touch the records of `slice`, read from `offset`.
# *out is malloc'ed (NULL when none), the caller frees it.
cdef int log_aborted(Log* log, int64_t offset, const ReadSlice* slice, AbortedTxn** out,
                     int* count) noexcept nogil
# Kafka's OffsetForLeaderEpoch: largest epoch <= `epoch` and where it ends; -1, -1 when not known,
# or LOG_HELD.
cdef int log_end_offset_for_epoch(Log* log, int32_t epoch, int32_t* found,
                                  int64_t* end_offset) noexcept nogil
cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil     # -1: not known now
cdef int32_t log_latest_epoch(Log* log) noexcept nogil                 # -1: none
