"""Access to a walk over the write-ahead log for modules that replay it."""
from libc.stdint cimport uint32_t

from kbroker.ext.journal_walk cimport JournalWalk

cdef class JournalReader:
    cdef JournalWalk walk
    cdef object directory
    cdef list paths                 # as bytes
    cdef dict reasons               # why a file cannot be used, by path
    cdef object topic_id(self)
    cdef object key(self)
    cdef object path(self, uint32_t file)
    cdef int check_order(self) except -1
    cdef object damage(self)
    cdef int finish(self) except -1
    cdef list skipped(self)
    cdef list damaged_files(self)
