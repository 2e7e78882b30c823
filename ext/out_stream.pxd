"""A stream of bytes with file regions between them: the output of a connection, or of an operation.

Belongs to whoever owns the connection or the operation. `thread` gives chunks, and takes them back;
NULL: the memory does.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from kbroker.ext.connection cimport NetThread, Out, Region

cdef enum:
    CHUNK_POOLED = 0        # CHUNK_BYTES, from the thread's free list
    CHUNK_LARGE             # malloc of its own size
    CHUNK_INLINE            # in an Op
    CHUNK_BYTES = 16384

# Where `size` bytes may be written in one piece behind what is there; NULL when memory is out.
cdef uint8_t* out_reserve(NetThread* thread, Out* out, uint32_t size) noexcept nogil
# `size` bytes were sent, regions not counted: free what they were in.
cdef void out_sent(NetThread* thread, Out* out, uint64_t size) noexcept nogil
cdef void out_region_done(Out* out) noexcept nogil
cdef void out_clear(NetThread* thread, Out* out) noexcept nogil
# Move all of `source` behind `target`.
cdef void out_join(NetThread* thread, Out* target, Out* source) noexcept nogil
cdef void regions_join(Out* out, Region* first, Region* last) noexcept nogil
cdef void region_free(Region* region) noexcept nogil
