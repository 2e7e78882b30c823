"""The journal under test, with owners that are made of nothing but counters."""
import os

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_load_i64, atomic_load_relaxed_i64, atomic_load_relaxed_u32,
    atomic_store_i64,
)
from kbroker.ext.journal cimport (
    JOURNAL_OK,
    Journal,
    JournalCallbacks,
    JournalOwner,
    Reservation,
    journal_cancel,
    journal_commit,
    journal_create,
    journal_demand,
    journal_destroy,
    journal_owner_init,
    journal_reserve,
    journal_start,
    journal_stop,
)
from kbroker.ext.journal_room cimport journal_has_room, journal_wait_room
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free

ctypedef struct Counted:
    JournalOwner owner
    int64_t refs
    int64_t durable
    int64_t failures
    int64_t syncs
    int64_t sync_error


cdef void retain(void* context) noexcept nogil:
    atomic_add_i64(&(<Counted*>context).refs, 1)


cdef void release(void* context) noexcept nogil:
    atomic_add_i64(&(<Counted*>context).refs, -1)


cdef void durable(void* context, int64_t end_offset) noexcept nogil:
    if end_offset < 0:
        atomic_add_i64(&(<Counted*>context).failures, 1)
    else:
        atomic_store_i64(&(<Counted*>context).durable, end_offset)


cdef int sync(void* context) noexcept nogil:
    atomic_add_i64(&(<Counted*>context).syncs, 1)
    return <int>atomic_load_i64(&(<Counted*>context).sync_error)


cdef class TestOwner:
    """One owner; its batches are whatever the test gives."""

    cdef Counted* counted

    def __cinit__(self, bytes topic_id not None, int partition):
        self.counted = <Counted*>calloc(1, sizeof(Counted))
        journal_owner_init(&self.counted.owner, self.counted, <const uint8_t*>topic_id, partition)

    def __dealloc__(self):
        free(self.counted)

    @property
    def durable(self):
        return atomic_load_i64(&self.counted.durable)

    @property
    def failures(self):
        return atomic_load_i64(&self.counted.failures)

    @property
    def syncs(self):
        return atomic_load_i64(&self.counted.syncs)

    @property
    def refs(self):
        return atomic_load_i64(&self.counted.refs)

    def fail_syncs(self, int error):
        atomic_store_i64(&self.counted.sync_error, error)


cdef class TestJournal:
    """A running journal. Owners must outlive it."""

    cdef Journal* journal

    def __cinit__(self, directory, *, group_bytes=1 << 20, file_bytes=4 << 20,
                  bytes_max=16 << 20, interval_ms=20, salt=1):
        cdef JournalCallbacks callbacks
        callbacks.retain = retain
        callbacks.release = release
        callbacks.durable = durable
        callbacks.sync = sync
        self.journal = journal_create(os.fsencode(directory), group_bytes, file_bytes, bytes_max,
                                      interval_ms, &callbacks, salt)
        if self.journal == NULL:
            raise OSError("journal_create failed")
        journal_start(self.journal)

    def append(self, TestOwner owner not None, bytes batch not None, int64_t end_offset,
               *, wait=True, demand=True):
        """Commit one batch; False when there was no room and `wait` is not set."""
        cdef Reservation place
        cdef const uint8_t* data = <const uint8_t*>batch
        cdef uint32_t size = <uint32_t>len(batch)
        cdef int code
        cdef bint want = demand, block = wait
        with nogil:
            code = journal_reserve(self.journal, &owner.counted.owner, size, &place)
            while block and code > JOURNAL_OK:
                if journal_wait_room(self.journal) != JOURNAL_OK:
                    break
                code = journal_reserve(self.journal, &owner.counted.owner, size, &place)
            if code == JOURNAL_OK:
                journal_commit(self.journal, &place, data, size, end_offset)
                if want:
                    journal_demand(self.journal)
        if code < JOURNAL_OK:
            raise OSError("the journal has failed")
        return code == JOURNAL_OK

    def wait_room(self):
        with nogil:
            journal_wait_room(self.journal)

    def has_room(self, uint32_t size):
        return journal_has_room(self.journal, size)

    def reserve_and_cancel(self, TestOwner owner not None, uint32_t size):
        cdef Reservation place
        cdef int code = journal_reserve(self.journal, &owner.counted.owner, size, &place)
        if code == JOURNAL_OK:
            journal_cancel(self.journal, &place)
        return code

    @property
    def groups_written(self):
        return atomic_load_relaxed_i64(&self.journal.groups_written)

    @property
    def files_count(self):
        return atomic_load_relaxed_u32(&self.journal.files_count)

    def close(self, *, unlink_files):
        if self.journal != NULL:
            with nogil:
                journal_stop(self.journal)
            journal_destroy(self.journal, unlink_files)
            self.journal = NULL
