"""The Python face of a client's loop (see client_thread)."""
from libc.stdint cimport int32_t

from kbroker.ext.client_link cimport Driver, Loop

cdef class LoopDriver:
    """Base of what hangs into a loop: fills `driver` in __cinit__, lives until the loop has ended.
    `driver.loop` is there once it was added to a ClientLoop."""
    cdef Driver driver

cdef class ClientLoop:
    cdef Loop* loop
    cdef list drivers               # of LoopDriver
    cdef readonly str name
    cdef object owner_pid
    cdef object lock                # of close()
    cdef unsigned long thread
    cdef int32_t next_id
    cdef bint started
    cdef bint finished
    cdef bint is_closed
    cdef object __weakref__
    cdef void stop(self) noexcept nogil
    cdef int check(self) except -1
    cdef bint is_full(self) noexcept
    cdef int hang_in(self, LoopDriver driver) except -1
