"""One segment: `<20 digits>.log`, the record batches from its base offset on, with its indexes.

Written at the end by pwrite, under the lock of the log, into blocks that fallocate prepared beyond
the size of the file (in steps that follow the partition's rate). The blocks are unwritten extents,
which read as zeros, and what is cut off is given back: no byte beyond the size can ever show an
older batch. A reader takes a reference under the lock and then reads [0, size) without it: bytes
below `size` never change, and `size` is published after the write, so that a reader never sees
what is half written.

What a crash may leave: anything beyond what was synced: a batch cut short, zeros where pages did
not reach the disk. Recovery walks the tail and cuts at the first batch that is not whole.

Functions that return int give 0 or an errno unless told otherwise. The lock of the log is held by
every caller, but for segment_find, segment_sync, segment_ref and segment_unref.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.index cimport Index

cdef enum:
    TIMES_UNKNOWN = -2                  # largest_timestamp, first_timestamp, created_ms
    SEGMENT_PATH_BYTES = 4096

cdef enum:
    FIND_NONE = 0                       # every batch lies below the offset
    FIND_BATCH = 1
    FIND_BROKEN = 2                     # the walk met something that is no batch
    FIND_MISLED = 3                     # the hint's index entry leads to no batch, or to another
    FIND_ERROR = -1

ctypedef struct Segment:
    int64_t base_offset
    char* path                          # of the .log; owned
    int32_t fd                          # -1 until first used; closed when idle
    int32_t refs                        # atomic; the log holds one, each read in flight one
    int32_t deleted                     # retired: files .deleted, or about to be; atomic
    int32_t dirty                       # holds bytes that were not fdatasynced
    int32_t sealed                      # rolled: trimmed, its last time index entry written
    int32_t has_aborted                 # there is a .txnindex
    int32_t used                        # since idle maintenance last looked
    void* pin                           # closed with unsynced bytes: see file_pins.pxd
    int32_t has_files                   # 0: the first append creates them, see segment_create_files
    int64_t size                        # bytes; written under the lock, loaded atomically to read
    int64_t allocated                   # end of the blocks prepared by fallocate; 0: none
    int64_t step                        # bytes of the next preparation; 0: none yet
    int64_t next_offset                 # one beyond the last offset held (active segment)
    int64_t largest_timestamp           # ms; -1: none; TIMES_UNKNOWN
    int64_t offset_of_largest_timestamp
    int64_t first_timestamp             # largest of the first batch, ms; -1: none; TIMES_UNKNOWN
    int64_t created_ms                  # TIMES_UNKNOWN: by an earlier start, see age_of
    int64_t jitter_ms                   # taken off segment.ms: partitions must not roll at once
    int64_t bytes_since_index           # since the last index entry
    int64_t last_used_ms                # as far as idle maintenance saw
    int64_t retired_ms                  # when it was renamed to .deleted
    Index offsets
    Index times

ctypedef struct IndexLimits:
    int64_t interval_bytes              # index.interval.bytes
    int64_t max_bytes                   # segment.index.bytes

ctypedef struct Hint:                   # where to begin to look for an offset
    int64_t position
    int64_t entry_offset                # the index entry's; -1 when it is none
    int64_t end                         # look no further

ctypedef struct Found:
    int64_t position
    int64_t length
    int64_t base_offset
    int64_t last_offset
    int64_t max_timestamp
    int32_t leader_epoch

cdef Segment* segment_new(const char* dir, int64_t base_offset) noexcept nogil
cdef void segment_ref(Segment* s) noexcept nogil
cdef void segment_unref(Segment* s) noexcept nogil              # any thread, no lock needed

cdef int segment_open(Segment* s, bint create) noexcept nogil
# Create the files of a segment that has none, empty. The caller syncs the folder.
cdef int segment_create_files(Segment* s) noexcept nogil
# Write at the end; prepares blocks, but none beyond segment_bytes. On an error nothing is left.
cdef int segment_append(Segment* s, const uint8_t* p, int64_t n,
                        int64_t segment_bytes) noexcept nogil
# From now on no segment prepares more than this ahead of its end, PREPARE_MAX_BYTES at most: blocks
# that nobody has written are missing elsewhere when the disk is short. Any thread.
cdef void segment_limit_preparation(int64_t bytes) noexcept nogil
# Before a write: room in the indexes for the entry that this batch will bring, if it does.
cdef int segment_reserve_entry(Segment* s, const IndexLimits* limits) noexcept nogil
# After it: index entry, timestamps, next offset. The size is the caller's to publish.
cdef void segment_note(Segment* s, int64_t position, const BatchInfo* info, int64_t last_offset,
                       const IndexLimits* limits) noexcept nogil
cdef int segment_load_times(Segment* s) noexcept nogil          # largest_timestamp
# The same; where no record has a timestamp, when the file was last written. -1: empty.
cdef int64_t segment_largest(Segment* s) noexcept nogil
cdef int segment_load_first(Segment* s) noexcept nogil          # first_timestamp
cdef void segment_hint(Segment* s, int64_t offset, Hint* out) noexcept nogil
# Where a walk from the hint's offset begins: at the batch that the index names, where there is one
# and it ends as the index says, or else at the first byte. Reads the file, which is open.
cdef int64_t segment_begin(Segment* s, const Hint* hint) noexcept nogil
# First batch at or behind the hint whose last offset is at least `offset`.
cdef int segment_find(Segment* s, const Hint* hint, int64_t offset, Found* out) noexcept nogil
# Both indexes anew from the headers of [0, size).
cdef int segment_rebuild_indexes(Segment* s, const IndexLimits* limits) noexcept nogil
# It takes no more batches: last time index entry, files cut to what they hold.
cdef int segment_seal(Segment* s, const IndexLimits* limits) noexcept nogil
# Sync the files. fd: the segment's descriptor as read under the lock of its log, or -1, by a caller
# that has held a reference since then, so that nobody closes it. The field itself may change here.
cdef int segment_sync(Segment* s, int fd, bint indexes) noexcept nogil
cdef int segment_cut(Segment* s, int64_t position) noexcept nogil
# Let go of file descriptor and mappings; 1 when there was something and no reader used it.
cdef int segment_idle(Segment* s) noexcept nogil
# It is in no log any more. Readers go on with their descriptor; its indexes are empty from now on:
# their names may be another's.
cdef void segment_give_up(Segment* s) noexcept nogil
# Give it up, and rename its files to .deleted, with `snapshot` the producer snapshot at its base
# offset as well.
cdef int segment_retire(Segment* s, int64_t now_ms, bint snapshot) noexcept nogil
# A compacted segment, whose files are .swap, into its place: they lose the suffix, .log first.
cdef int segment_place(Segment* s) noexcept nogil
# Close the descriptor of a segment that nobody holds but the log and the caller. One with unsynced
# bytes is pinned; it stays open where that fails.
cdef void segment_close_unused(Segment* s) noexcept nogil
cdef int segment_unlink(Segment* s) noexcept nogil
# Unlink the files of one that never became part of its log, and let go of it.
cdef void segment_discard(Segment* s) noexcept nogil
# The path of one of its files: `suffix` instead of ".log".
cdef void segment_path(const Segment* s, const char* suffix, char* out) noexcept nogil
