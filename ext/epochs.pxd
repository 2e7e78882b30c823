"""Leader epochs of a partition and where each began: the cache and its checkpoint file.

`leader-epoch-checkpoint`, text: a line `0` (version), a line with the number of entries, then
`epoch start_offset`
a line. Written whole to a .tmp file, synced, renamed. Not thread-safe: the lock of the log is held.
"""

from libc.stdint cimport int32_t, int64_t

ctypedef struct EpochEntry:
    int64_t start_offset
    int32_t epoch

ctypedef struct EpochCache:
    EpochEntry* entries                 # ascending in both
    int count
    int capacity
    int dirty                           # not yet in the checkpoint file

cdef void epochs_init(EpochCache* c) noexcept nogil
cdef void epochs_free(EpochCache* c) noexcept nogil
cdef int epochs_load(EpochCache* c, const char* dir) noexcept nogil
cdef int epochs_save(EpochCache* c, const char* dir) noexcept nogil
cdef int epochs_assign(EpochCache* c, int32_t epoch, int64_t start_offset) noexcept nogil
cdef int32_t epochs_latest(const EpochCache* c) noexcept nogil
cdef int32_t epochs_at(const EpochCache* c, int64_t offset) noexcept nogil
cdef void epochs_end_offset(const EpochCache* c, int32_t epoch, int64_t leo, int32_t* found,
                            int64_t* end) noexcept nogil
cdef void epochs_truncate_from_end(EpochCache* c, int64_t end_offset) noexcept nogil
cdef void epochs_truncate_from_start(EpochCache* c, int64_t start_offset) noexcept nogil
