"""The log under test: appends as a client's, a journal of its own, and what an append costs."""
import os

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.journal cimport (
    Journal,
    JournalCallbacks,
    journal_create,
    journal_demand,
    journal_destroy,
    journal_start,
    journal_stop,
)
from kbroker.ext.log cimport Log
from kbroker.ext.log_append cimport (
    AppendResult,
    log_advance_hw,
    log_append,
    log_append_as_is,
    log_append_on,
)
from kbroker.ext.log_flush cimport log_flush
from kbroker.ext.log_producers cimport log_verify
from kbroker.ext.log_read cimport ReadSlice, log_aborted, log_read
from kbroker.ext.log_recovery cimport log_set_journal
from kbroker.ext.log_state cimport Log as LogStruct
from kbroker.ext.log_state cimport LOG_OK, log_ref, log_unref
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock, pwrite
from kbroker.ext.producers cimport NOT_GUARDED, Terms, producers_longest_search
from kbroker.ext.segment cimport (
    TIMES_UNKNOWN, Segment, segment_idle, segment_load_first, segment_ref, segment_sync,
    segment_unref,
)
from kbroker.ext.txn_index cimport AbortedTxn


def append(Log log, bytes batch, int origin, int64_t now_ms, *, int64_t guard=NOT_GUARDED,
           int transaction_version=0):
    """log_append_on: (code, base offset, last offset, append time, hw advanced, stored bytes)."""
    cdef bytearray own = bytearray(batch)
    cdef uint8_t* p = own
    cdef BatchInfo info
    cdef AppendResult result
    cdef Terms terms
    cdef int code
    terms.origin = origin
    terms.guard = guard
    terms.transaction_version = transaction_version
    if batch_parse(p, p + len(own), &info) != BATCH_OK:
        raise ValueError("no batch")
    with nogil:
        code = log_append_on(log.core, &terms, p, &info, now_ms, &result)
    return (code, result.base_offset, result.last_offset, result.log_append_time,
            result.hw_advanced, bytes(own))


def verify(Log log, int64_t producer_id, int epoch, int sequence, bint bumps, int64_t now_ms):
    """log_verify: (code, guard)."""
    cdef int64_t guard = 0
    cdef int code = log_verify(log.core, producer_id, epoch, sequence, bumps, now_ms, &guard)
    return code, guard


def longest_search(Log log):
    """How many other producers a search for one of the log's passes at the most."""
    return producers_longest_search(log.core.producers)


def append_as_is(Log log, bytes batch, int64_t now_ms):
    """log_append_as_is: the code."""
    cdef const uint8_t* p = batch
    cdef BatchInfo info
    if batch_parse(p, p + len(batch), &info) != BATCH_OK:
        raise ValueError("no batch")
    return log_append_as_is(log.core, p, &info, now_ms)


def read(Log log, int64_t offset, int32_t max_bytes, int isolation, bint min_one):
    """log_read and log_aborted: (code, segment base or -1, position, length, watermarks,
    aborted)."""
    cdef ReadSlice piece
    cdef AbortedTxn* aborted = NULL
    cdef int count = 0
    cdef int code
    with nogil:
        code = log_read(log.core, offset, max_bytes, isolation, min_one, &piece)
    base = -1
    found = []
    if piece.segment != NULL:
        base = piece.segment.base_offset
        if log_aborted(log.core, offset, &piece, &aborted, &count) == LOG_OK:
            found = [(aborted[i].producer_id, aborted[i].first_offset) for i in range(count)]
        free(aborted)
        segment_unref(piece.segment)
    at = (piece.at.log_start, piece.at.lso, piece.at.hw, piece.at.leo)
    return code, base, piece.position, piece.length, at, found


def advance_hw(Log log, int64_t end_offset):
    """log_advance_hw, as the flusher calls it."""
    return log_advance_hw(log.core, end_offset)


# ---- a journal

cdef void retain(void* context) noexcept nogil:
    log_ref(<LogStruct*> context)


cdef void release(void* context) noexcept nogil:
    log_unref(<LogStruct*> context)


cdef void durable(void* context, int64_t end_offset) noexcept nogil:
    log_advance_hw(<LogStruct*> context, end_offset)


cdef int sync(void* context) noexcept nogil:
    cdef int64_t ignored
    return log_flush(<LogStruct*> context, 0, &ignored)


cdef class TestLogJournal:
    """A journal that moves the high watermark of the logs attached to it; not started, it takes
    appends and makes nothing durable."""

    cdef Journal* journal
    cdef bint started

    def __cinit__(self, str directory not None, *, bint started=True,
                  int64_t group_bytes=1 << 20):
        cdef JournalCallbacks call
        memset(&call, 0, sizeof(call))
        call.retain = retain
        call.release = release
        call.durable = durable
        call.sync = sync
        path = os.fsencode(directory)
        self.journal = journal_create(path, group_bytes, 8 << 20, 64 << 20, 10, &call, 77)
        if self.journal == NULL:
            raise OSError("no journal")
        self.started = started
        if started:
            journal_start(self.journal)

    def attach(self, Log log):
        log_set_journal(log.core, self.journal, 0)

    def demand(self):
        with nogil:
            journal_demand(self.journal)

    def stop(self):
        if self.journal != NULL:
            with nogil:
                if not self.started:
                    journal_start(self.journal)
                journal_stop(self.journal)
                journal_destroy(self.journal, True)
            self.journal = NULL


# ---- one segment, two threads

def sync_segment(Log log, int32_t index, int64_t rounds):
    """Sync a segment `rounds` times, as a flush does. Return the first errno, or 0."""
    cdef Segment* s
    cdef int64_t _i
    cdef int fd
    cdef int error = 0
    with nogil:
        pthread_mutex_lock(&log.core.lock)
        s = log.core.segments[index]
        fd = s.fd
        segment_ref(s)
        pthread_mutex_unlock(&log.core.lock)
        for _i in range(rounds):
            error = segment_sync(s, fd, False)
            if error:
                break
        segment_unref(s)
    return error


def load_first(Log log, int32_t index, int64_t rounds):
    """Read the first timestamp of a closed segment `rounds` times. Return the first errno, or 0."""
    cdef Segment* s
    cdef int64_t _i
    cdef int error = 0
    with nogil:
        pthread_mutex_lock(&log.core.lock)
        segment_idle(log.core.segments[index])
        pthread_mutex_unlock(&log.core.lock)
        for _i in range(rounds):
            pthread_mutex_lock(&log.core.lock)
            s = log.core.segments[index]
            s.first_timestamp = TIMES_UNKNOWN
            error = segment_load_first(s)
            pthread_mutex_unlock(&log.core.lock)
            if error:
                break
    return error


# ---- cost

def append_ns(Log log, bytes batch, int64_t count):
    """Nanoseconds that `count` appends of the batch take."""
    cdef bytearray own = bytearray(batch)
    cdef uint8_t* p = own
    cdef BatchInfo info
    cdef AppendResult result
    cdef int64_t _i
    cdef int64_t begun
    cdef int code = LOG_OK
    if batch_parse(p, p + len(own), &info) != BATCH_OK:
        raise ValueError("no batch")
    with nogil:
        begun = monotonic_ns()
        for _i in range(count):
            code = log_append(log.core, p, &info, 1000, &result)
            if code != LOG_OK:
                break
        begun = monotonic_ns() - begun
    if code != LOG_OK:
        raise OSError(f"append: {code}")
    return begun


def pwrite_ns(int fd, bytes batch, int64_t count):
    """Nanoseconds that `count` bare pwrites of the same bytes take, one behind the other."""
    cdef const uint8_t* p = batch
    cdef size_t n = len(batch)
    cdef int64_t at = 0
    cdef int64_t _i
    cdef int64_t begun
    with nogil:
        begun = monotonic_ns()
        for _i in range(count):
            if pwrite(fd, p, n, at) != <ssize_t> n:
                break
            at += n
        begun = monotonic_ns() - begun
    if at != count * <int64_t> n:
        raise OSError("pwrite")
    return begun


def read_ns(Log log, int32_t max_bytes):
    """Nanoseconds and number of the reads, in sequence, of the whole log."""
    cdef ReadSlice piece
    cdef int64_t offset = log.core.log_start
    cdef int64_t reads = 0
    cdef int64_t begun
    with nogil:
        begun = monotonic_ns()
        while log_read(log.core, offset, max_bytes, 0, True, &piece) == LOG_OK:
            if piece.segment == NULL:
                break
            # As a client goes on: behind the last whole batch, which here is guessed by size.
            offset += max(<int64_t> 1, piece.length // 16384)
            segment_unref(piece.segment)
            reads += 1
        begun = monotonic_ns() - begun
    return begun, reads
