"""Exclusive use of a consumer (see client_use_lock.pyx)."""
from kbroker.ext.client_fetch_parts cimport FetchParts

cdef class UseLock:
    cdef FetchParts fetcher
    cdef unsigned long owner            # a thread's identifier, 0: none
    cdef int depth                      # calls of the owner that are nested
    cdef int pid
    cdef object planned                 # exceptions that end a change as it is meant to end
    cdef public bint closed             # no call is let in any more
    cdef bint changing                  # a change is under way that must not be split
    cdef public bint broken             # an exception that is not planned has split one

    cdef int enter(self) except -1
    cdef int leave(self, object error) except -1
