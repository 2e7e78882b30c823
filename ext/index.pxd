"""Sparse indexes of a segment: offset -> byte position, and timestamp -> offset.

    .index      entries of 8 bytes, big-endian: int32 offset - base offset, int32 byte position
                in the .log. The offset is the last one of the batch that begins there.
    .timeindex  entries of 12 bytes, big-endian: int64 timestamp (ms), int32 offset - base
                offset. Up to this offset no timestamp is larger.

Entries ascend. A file is mapped when it is first needed, grows in steps, and is trimmed to its
entries when the segment rolls, closes or goes idle; bytes beyond the last entry are zero.

There is no checksum, and a crash may leave zeros or older entries behind those that reached the
disk: `index_keep_valid` cuts at the first entry that does not ascend, recovery appends the rest
again. What is broken in a quiet segment shows when a lookup does not lead to the batch that it
names (see segment): then the index is rebuilt from the .log.

Not thread-safe: the lock of the log is held by every caller. Functions that return int give 0 or
an errno.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

cdef enum:
    OFFSET_ENTRY_BYTES = 8
    TIME_ENTRY_BYTES = 12
    INDEX_STEP_BYTES_MIN = 4096         # of the first step; the next ones double

ctypedef struct Index:
    const char* log_path                # the segment's, which outlives this
    uint8_t* map                        # NULL: not mapped
    int64_t mapped                      # bytes
    int64_t base_offset
    int64_t last_offset                 # of the last entry; base_offset when there is none
    int64_t last_timestamp              # of the last entry (time index); -1 when there is none
    int32_t entries                     # -1: not known, the file has not been looked at
    int32_t entry_bytes                 # OFFSET_ENTRY_BYTES or TIME_ENTRY_BYTES: the kind
    int32_t writable                    # mapped for writing: the file is longer than its entries
    int32_t dirty                       # holds entries that were not synced

cdef void index_init(Index* x, const char* log_path, int32_t entry_bytes,
                     int64_t base_offset) noexcept nogil
# The file's path, with `more` (".deleted" or "") behind it.
cdef void index_path(const Index* x, const char* more, char* out, size_t room) noexcept nogil
# Map what is on disk, for reading; a file that is not there has no entries.
cdef int index_load(Index* x) noexcept nogil
# Unmap without a look at the file.
cdef void index_release(Index* x) noexcept nogil
# Unmap and cut the file to its entries.
cdef int index_trim(Index* x) noexcept nogil
# Make the file exist, empty if need be (Kafka takes a missing index for a broken one).
cdef int index_touch(Index* x) noexcept nogil
cdef int index_sync(Index* x) noexcept nogil
# Forget all entries, in memory and in the file.
cdef int index_clear(Index* x) noexcept nogil
# Keep entries of offsets below `offset`.
cdef int index_truncate(Index* x, int64_t offset) noexcept nogil
# 1 when first and last entry can be true for a .log of log_bytes, and the file is there.
cdef bint index_sane(Index* x, int64_t log_bytes) noexcept nogil
# Keep the entries before the first one that does not ascend or points beyond log_bytes.
cdef int index_keep_valid(Index* x, int64_t log_bytes) noexcept nogil
# Room for one more entry, mapped for writing, in a file of at most max_bytes.
cdef int index_reserve(Index* x, int64_t max_bytes) noexcept nogil
# The segment must roll. A time index keeps its last slot for the roll itself.
cdef bint index_full(const Index* x, int64_t max_bytes) noexcept nogil

# After index_reserve. An entry that does not ascend is left out.
cdef void offset_index_append(Index* x, int64_t offset, int64_t position) noexcept nogil
cdef void time_index_append(Index* x, int64_t timestamp, int64_t offset) noexcept nogil

# Greatest entry at or below: its number, or -1 (and position 0, offset base_offset).
cdef int32_t offset_index_lookup(Index* x, int64_t offset, int64_t* entry_offset,
                                 int64_t* position) noexcept nogil
cdef int32_t time_index_lookup(Index* x, int64_t timestamp, int64_t* offset) noexcept nogil
# Offset of the first entry at or beyond a byte position; -1 when there is none.
cdef int64_t offset_index_beyond(Index* x, int64_t position) noexcept nogil
# Entry n, 0 <= n < entries, mapped.
cdef int64_t index_entry_offset(const Index* x, int32_t n) noexcept nogil
cdef int64_t index_entry_position(const Index* x, int32_t n) noexcept nogil
cdef int64_t index_entry_timestamp(const Index* x, int32_t n) noexcept nogil
