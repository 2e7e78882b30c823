"""Sparse indexes of a segment: offset -> byte position, and timestamp -> offset.

`.index`      entries of 8 bytes, big-endian: int32 offset - base_offset, int32 byte position in the
.log
`.timeindex`  entries of 12 bytes, big-endian: int64 timestamp (ms), int32 offset - base_offset

Entries ascend. There is no checksum: after a crash an index that fails `index_sane` is rebuilt from
the .log.
A file is mapped when it is first needed, grows in steps (always a whole number of entries is in
use), and is
trimmed to its entries when the segment rolls or closes; bytes beyond the last entry are zero.

Not thread-safe: the lock of the log is held by every caller.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12

ctypedef struct Index:
    char* path                      # owned; the segment's, with this index's suffix
    uint8_t* map                    # NULL: not mapped
    # bytes mapped (and the size of the file while mapped for writing)
    int64_t mapped
    int32_t entries                 # -1: not known yet, the file has not been looked at
    int32_t entry_bytes             # OFFSET_ENTRY_BYTES or TIME_ENTRY_BYTES
    int64_t base_offset
    int64_t last_offset             # of the last entry; base_offset when there is none
    int64_t last_timestamp          # of the last entry (time index); -1 when there is none
    int32_t writable                # mapped for writing: the file may be longer than its entries
    int32_t dirty                   # holds entries that were not synced

cdef int index_init(Index* x, const char* segment_path, const char* suffix, int32_t entry_bytes,
                    int64_t base_offset) noexcept nogil
cdef void index_free(Index* x) noexcept nogil
# map what is on disk, count entries
cdef int index_load(Index* x) noexcept nogil
cdef int index_unmap(Index* x) noexcept nogil                      # trim when writable, unmap
cdef int index_sane(Index* x, int64_t log_bytes) noexcept nogil    # 1 when the entries can be used
cdef int index_clear(Index* x) noexcept nogil
cdef int index_truncate(Index* x, int64_t offset) noexcept nogil   # keep entries below `offset`
cdef int index_sync(Index* x) noexcept nogil
cdef bint index_full(const Index* x, int64_t max_bytes) noexcept nogil

cdef int offset_index_append(Index* x, int64_t offset, int64_t position,
                             int64_t max_bytes) noexcept nogil
cdef int64_t offset_index_lookup(Index* x, int64_t offset, int64_t* position) noexcept nogil
cdef int64_t offset_index_by_position(Index* x, int64_t position, int64_t* found) noexcept nogil

cdef int time_index_append(Index* x, int64_t timestamp, int64_t offset, int64_t max_bytes,
                           bint skip_full_check) noexcept nogil
cdef int64_t time_index_lookup(Index* x, int64_t timestamp, int64_t* offset) noexcept nogil
