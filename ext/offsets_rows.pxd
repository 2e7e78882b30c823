"""The fold of `__consumer_offsets` as Python sees it."""
from libc.stdint cimport uint8_t, uint32_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.offsets_fold cimport Commit, Fold

cdef class OffsetsFold:
    cdef Fold* fold                 # owned
    cdef list names                 # str by number, None where not asked for yet
    cdef uint32_t next_entry
    cdef readonly bint done

    cdef int check(self, int code) except -1
    cdef int decompress(self, const uint8_t* p, const BatchInfo* info) except -1
    cdef list take_others(self)
    cdef str name(self, uint32_t number)
    cdef bytes packed_commit(self, const Commit* commit)
    cdef int wants_done(self) except -1
