"""One segment: `<20 digits>.log` with its indexes.

Written at the end by pwrite under the lock of the log, into blocks that fallocate prepared beyond
the size
of the file. A reader takes a reference under that lock and then reads [0, size) without it: bytes
below
`size` never change. `size` is published after the write, so a reader never sees what is half
written.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.index cimport Index

ctypedef struct Segment:
    int64_t base_offset
    char* path                      # of the .log; owned; renamed to .deleted at retirement
    # -1 until first used; opened under the lock of the log; closed when idle
    int32_t fd
    int32_t refs                      # atomic; the log holds one, each read in flight one
    # retired: the last reference closes; the files are unlinked later
    int32_t deleted
    int32_t dirty                     # holds bytes that were not fdatasynced
    int64_t size                    # bytes; written under the lock, loaded atomically by readers
    int64_t allocated               # end of what fallocate prepared (at least size; 0: nothing)
    int64_t next_offset             # one beyond the last offset held
    int64_t largest_timestamp       # ms, -1: none
    int64_t offset_of_largest_timestamp
    # largest timestamp of the first batch, ms; -1: empty or not read yet
    int64_t first_timestamp
    int64_t created_ms
    int64_t jitter_ms               # taken off segment.ms, so that partitions do not roll together
    int64_t bytes_since_index       # since the last index entry
    int64_t last_used_ms            # for idle maintenance
    int64_t retired_ms              # when it was renamed to .deleted
    Index offsets
    Index times

cdef Segment* segment_new(const char* dir, int64_t base_offset) noexcept nogil
cdef void segment_ref(Segment* s) noexcept nogil
cdef void segment_unref(Segment* s) noexcept nogil                  # any thread, no lock needed
