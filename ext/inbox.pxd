"""A list that any thread puts to and one thread takes whole, without a lock.

What is put begins with the pointer to the next one (Post, LoopPost), and lies wherever its owner
has it. In the list the newest comes first, as it is taken the oldest.
"""
from kbroker.ext.atomics cimport atomic_cas_ptr, atomic_exchange_ptr, atomic_load_ptr


cdef inline bint inbox_put(void** inbox, void* item) noexcept nogil:
    """True: the list was empty."""
    cdef void* head = atomic_load_ptr(inbox)
    while True:
        (<void**> item)[0] = head
        if atomic_cas_ptr(inbox, &head, item):
            return head == NULL


cdef inline void* inbox_take(void** inbox) noexcept nogil:
    """All of it; NULL: nothing."""
    cdef void* taken
    cdef void* following
    cdef void* oldest = NULL
    if atomic_load_ptr(inbox) == NULL:
        return NULL
    taken = atomic_exchange_ptr(inbox, NULL)
    while taken != NULL:
        following = (<void**> taken)[0]
        (<void**> taken)[0] = oldest
        oldest = taken
        taken = following
    return oldest
