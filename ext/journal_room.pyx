"""See journal_room.pxd."""
from kbroker.ext.journal_state cimport (
    JOURNAL_FAILED,
    JOURNAL_GROUP_HEADER_BYTES,
    JOURNAL_OK,
    JOURNAL_STALL,
)
from kbroker.ext.posix cimport (
    pthread_cond_timedwait,
    pthread_cond_wait,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    timespec_t,
)


cdef bint journal_has_room(Journal* journal, uint32_t size) noexcept nogil:
    """Is there room for `size` bytes of entries at this moment (a hint: others may take it)?

    What no group can hold as a whole goes into several.
    """
    cdef bint room
    pthread_mutex_lock(&journal.lock)
    room = (journal.groups[journal.current].used + journal.admitted + size
            <= journal.group_bytes) or size > journal.group_bytes - JOURNAL_GROUP_HEADER_BYTES
    if not room:
        journal.stalled = 1
        journal_demand_locked(journal)
    pthread_mutex_unlock(&journal.lock)
    return room


cdef int journal_wait_room(Journal* journal) noexcept nogil:
    """Wait until a group was written, or none is to be. For callers that may block. 0, or
    JOURNAL_FAILED."""
    return journal_wait_room_until(journal, 0)


cdef int journal_wait_room_until(Journal* journal, int64_t deadline_ns) noexcept nogil:
    """Likewise, until a moment (monotonic; 0: without end) at most: JOURNAL_STALL when it came."""
    cdef timespec_t at
    cdef int64_t seen
    cdef int code = JOURNAL_OK
    at.tv_sec = deadline_ns // 1000000000
    at.tv_nsec = deadline_ns % 1000000000
    pthread_mutex_lock(&journal.lock)
    seen = journal.groups_written
    journal_demand_locked(journal)
    # The group that had no room may be written by now: of an empty one the flusher tells nobody.
    while seen == journal.groups_written and not journal_is_empty(journal) and not journal.failed \
            and code == JOURNAL_OK:
        if deadline_ns == 0:
            pthread_cond_wait(&journal.moved, &journal.lock)
        elif pthread_cond_timedwait(&journal.moved, &journal.lock, &at) != 0:
            code = JOURNAL_STALL
    pthread_mutex_unlock(&journal.lock)
    return JOURNAL_FAILED if journal.failed else code
