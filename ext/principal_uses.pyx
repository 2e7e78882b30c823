"""Counts of principals (see principal_uses.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_cas_ptr, atomic_load_i64, atomic_load_ptr,
)
from kbroker.ext.connection cimport PRINCIPAL_CHUNKS

cdef enum:
    CHUNK_BITS = 12
    CHUNK_COUNTS = 1 << CHUNK_BITS


cdef int64_t* count_of(Net* net, int32_t number, bint make) noexcept nogil:
    """An even number and the odd one above it are one principal; NULL: nobody's, or no memory."""
    cdef int32_t place = number >> 1
    cdef void** at
    cdef void* found
    cdef void* made
    if place <= 0 or place >> CHUNK_BITS >= PRINCIPAL_CHUNKS:
        return NULL
    at = &net.principal_uses[place >> CHUNK_BITS]
    found = atomic_load_ptr(at)
    if found == NULL and make:
        made = calloc(CHUNK_COUNTS, sizeof(int64_t))
        if made != NULL and not atomic_cas_ptr(at, &found, made):
            free(made)                  # somebody else was quicker, and `found` is theirs
        elif made != NULL:
            found = made
    if found == NULL:
        return NULL
    return <int64_t*> found + (place & (CHUNK_COUNTS - 1))


cdef void principal_hold(Net* net, int32_t number) noexcept nogil:
    cdef int64_t* count = count_of(net, number, True)
    if count != NULL:
        atomic_add_i64(count, 1)


cdef void principal_drop(Net* net, int32_t number) noexcept nogil:
    cdef int64_t* count = count_of(net, number, False)
    if count != NULL:
        atomic_add_i64(count, -1)


cdef bint principal_is_idle(Net* net, int32_t number) noexcept nogil:
    cdef int64_t* count = count_of(net, number, False)
    return count == NULL or atomic_load_i64(count) <= 0


cdef void principals_free(Net* net) noexcept nogil:
    cdef size_t i
    for i in range(PRINCIPAL_CHUNKS):
        free(net.principal_uses[i])
