"""Contexts of a library that were used: making one costs about as much as a small batch does.

Any thread takes one out and puts it back. A room of them is an array of CONTEXTS_KEPT pointers, all
NULL at first.
"""
from kbroker.ext.atomics cimport atomic_cas_ptr, atomic_exchange_ptr

cdef enum:
    CONTEXTS_KEPT = 4


cdef inline void* take_context(void** kept) noexcept nogil:
    """The caller's now, or NULL where none is kept."""
    cdef void* found
    cdef int i
    for i in range(CONTEXTS_KEPT):
        found = atomic_exchange_ptr(&kept[i], NULL)
        if found != NULL:
            return found
    return NULL


cdef inline bint keep_context(void** kept, void* context) noexcept nogil:
    """False where there is no place left: it stays the caller's, to be freed."""
    cdef void* expected
    cdef int i
    for i in range(CONTEXTS_KEPT):
        expected = NULL
        if atomic_cas_ptr(&kept[i], &expected, context):
            return True
    return False
