"""A bound for the descriptors of segment files.

A log opens the files of its segments when they are first used. Above the bound, those that opened
files first let go of them: a file that is needed again is opened again. What a reader or a sync
uses stays open, so the bound may be exceeded until the next close_excess_files(). Unsynced files:
see file_pins.pxd.
"""
from libc.stdint cimport int32_t, int64_t

# A log. Embedded in it; zeroed at first.
ctypedef struct FileOwner:
    FileOwner* before
    FileOwner* after
    int32_t listed
    # Close what is not in use, without waiting for anything. How many stay open.
    int32_t (*let_go)(FileOwner* owner) noexcept nogil

# Any thread.
cdef void files_limit(int64_t most) noexcept nogil
cdef int64_t files_open() noexcept nogil
cdef void files_count(int64_t change) noexcept nogil
# Before a file is opened: close others' where as many are open as may be. `always`: even if not.
# False: nothing was closed.
cdef bint files_make_room(bint always) noexcept nogil
# It has opened a file.
cdef void files_note(FileOwner* owner) noexcept nogil
# It is no more.
cdef void files_forget(FileOwner* owner) noexcept nogil
