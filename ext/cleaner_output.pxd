"""The segment that a cleaning writes: `<20 digits>.log.cleaned` and its indexes.

The .log is written as it comes, through a buffer; the indexes are gathered in memory and written at
the end, then everything is synced: a `.cleaned` file that is renamed to `.swap` is whole on disk.
What a crash leaves of it is removed at the next start (log_files).

Belongs to one thread. Functions that return int give 0 or an errno unless told otherwise.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.cleaner_txns cimport TxnEntry
from kbroker.ext.compression_buffer cimport Buffer
from kbroker.ext.log_state cimport Log
from kbroker.ext.segment cimport IndexLimits, Segment

cdef enum:
    OUTPUT_PATH_BYTES = 4096

ctypedef struct Output:
    Log* log                            # whose cleaned_bytes tell what is written
    char stem[OUTPUT_PATH_BYTES]        # path of the files without their suffixes
    int fd                              # -1: not open
    int32_t with_aborted                # there is a .txnindex
    int64_t base_offset
    int64_t size                        # bytes, those in the buffer included
    IndexLimits limits
    int64_t bytes_since_index
    int64_t largest_timestamp
    int64_t offset_of_largest_timestamp
    int64_t first_timestamp
    int64_t last_indexed_timestamp
    Buffer pending                      # not written yet; kept from one output to the next
    Buffer offsets                      # the indexes as they will lie in their files
    Buffer times
    Buffer aborted

# LOG_OK, LOG_CLOSED or another error of the log, with nothing left behind.
cdef int output_open(Output* o, Log* log, int64_t base_offset) noexcept nogil
# A whole batch of n bytes. EFBIG: positions would not fit an index.
cdef int output_append(Output* o, const uint8_t* p, int64_t n, const BatchInfo* info) noexcept nogil
cdef int output_aborted(Output* o, const TxnEntry* entry) noexcept nogil
# Write what is left and sync; the files get the modification time of `like`, the last segment
# that went in, because retention may go by it.
cdef int output_finish(Output* o, const Segment* like) noexcept nogil
# All files from one suffix to another, .log first.
cdef int output_rename(const Output* o, const char* old, const char* new) noexcept nogil
# The segment of these files once they have their names; takes the descriptor. NULL: no memory.
cdef Segment* output_segment(Output* o, const char* dir) noexcept nogil
# Close and unlink what there is of it, .cleaned or .swap.
cdef void output_discard(Output* o) noexcept nogil
cdef void output_free(Output* o) noexcept nogil
