"""Room in the journal's current group: is there some, and waiting for it.

Floor: beside `journal`, whose lock and groups these use.
"""
from libc.stdint cimport int64_t, uint32_t

from kbroker.ext.atomics cimport atomic_store_relaxed_i32
from kbroker.ext.journal_state cimport Journal
from kbroker.ext.posix cimport pthread_cond_signal

cdef int journal_wait_room(Journal* journal) noexcept nogil
cdef int journal_wait_room_until(Journal* journal, int64_t deadline_ns) noexcept nogil
cdef bint journal_has_room(Journal* journal, uint32_t size) noexcept nogil

# -- with the journal's lock held

cdef inline bint journal_is_empty(Journal* journal) noexcept nogil:
    """Nothing is in the current group, and nobody is about to put something in."""
    return journal.groups[journal.current].count == 0 and journal.admitted == 0


cdef inline void journal_demand_locked(Journal* journal) noexcept nogil:
    if not journal.demand:
        atomic_store_relaxed_i32(&journal.demand, 1)
        if journal.sleeping:
            pthread_cond_signal(&journal.wanted)
