"""Memory with a count of its users: the frame of a Fetch answer, the records of a batch.

Whoever takes bytes out of a frame holds it; the last one to let go frees it. Any thread may take
and let go.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

ctypedef struct Memory:
    int32_t refs                    # atomic
    uint8_t* p
    int64_t n                       # bytes
    void* owner                     # for `release`
    void (*release)(Memory*) noexcept nogil     # gives p back; NULL: p is malloc's

# One reference to n bytes at p, which are the Memory's from now on; NULL: no memory, p is not.
cdef Memory* memory_make(
    uint8_t* p, int64_t n, void* owner, void (*release)(Memory*) noexcept nogil
) noexcept nogil
cdef Memory* memory_ref(Memory* memory) noexcept nogil
cdef void memory_unref(Memory* memory) noexcept nogil       # NULL does nothing
