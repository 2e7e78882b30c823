"""The files of a partition's folder: which segments there are, and what interrupted work left.

Names are `<20 digits>` and a suffix. Left behind and removed: `.deleted` (retired, not unlinked in
time), `.cleaned` (compaction that did not end). `.swap` (compaction that ended, not yet in place)
replaces the segments that it covers, unless a `.cleaned` file at or below it says that the set is
not complete. Apache Kafka leaves the same and mends it the same way.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.snapshots cimport Snapshots

cdef enum:
    FILE_LOG = 1
    FILE_OFFSETS = 2
    FILE_TIMES = 4
    FILE_ABORTED = 8

ctypedef struct FileSet:
    int64_t base_offset
    int32_t kinds                       # FILE_* of what is there

ctypedef struct Listing:
    FileSet* sets                       # ascending; only those with a .log
    int32_t count
    int32_t capacity
    Snapshots snapshots

# Tidy the folder and list it. 0 or an errno. Index files without their .log are removed.
cdef int files_list(const char* dir, Listing* out) noexcept nogil
cdef void listing_free(Listing* list) noexcept nogil
# The producer snapshots alone, without tidying.
cdef int files_snapshots(const char* dir, Snapshots* out) noexcept nogil
