"""Leader epochs of a partition and where each began: the cache and its checkpoint file.

`leader-epoch-checkpoint`, text: a line `0` (version), a line with the number of entries, then a
line `epoch start_offset` for each. Written whole to a .tmp file, synced, renamed; a crash leaves
the old file or the new one. What it lacks is in the batches behind the recovery point, what it has
too many of lies beyond the end of the log: recovery mends both.

Not thread-safe: the lock of the log is held. Functions that return int give 0 or an errno.
"""
from libc.stdint cimport int32_t, int64_t

cdef enum:
    NO_EPOCH = -1
    NO_EPOCH_OFFSET = -1

ctypedef struct EpochEntry:
    int64_t start_offset
    int32_t epoch

ctypedef struct EpochCache:
    EpochEntry* entries                 # ascending in both
    int32_t count
    int32_t capacity
    int32_t dirty                       # not yet in the checkpoint file

cdef void epochs_init(EpochCache* c) noexcept nogil
cdef void epochs_free(EpochCache* c) noexcept nogil
# A file that is not there or that cannot be read leaves the cache empty: EILSEQ for the latter.
cdef int epochs_load(EpochCache* c, const char* dir) noexcept nogil
# Without `sync` the file is not synced before it takes the old one's place. `folder` is open: its
# name may by now be another log's.
cdef int epochs_write(EpochCache* c, int folder, bint sync) noexcept nogil
# The epoch begins at start_offset; entries that contradict it go. ENOMEM or 0.
cdef int epochs_assign(EpochCache* c, int32_t epoch, int64_t start_offset) noexcept nogil
cdef int32_t epochs_latest(const EpochCache* c) noexcept nogil         # NO_EPOCH when empty
cdef int32_t epochs_at(const EpochCache* c, int64_t offset) noexcept nogil
# Kafka's OffsetForLeaderEpoch: largest epoch at or below and where the next one begins (the
# latest ends at leo); NO_EPOCH and NO_EPOCH_OFFSET when that is not known.
cdef void epochs_end_offset(const EpochCache* c, int32_t epoch, int64_t leo, int32_t* found,
                            int64_t* end) noexcept nogil
cdef void epochs_truncate_from_end(EpochCache* c, int64_t end_offset) noexcept nogil
cdef void epochs_truncate_from_start(EpochCache* c, int64_t start_offset) noexcept nogil
