"""Appends of the control plane (see appending.pxd)."""
cimport cython
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kbroker.errors import ClientError, ErrorCode, LateError

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_load_i32, atomic_store_i32,
)
from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_crc_ok, batch_parse
from kbroker.ext.clock cimport monotonic_ns, realtime_ms, timespec_of
from kbroker.ext.journal cimport JOURNAL_STALL
from kbroker.ext.journal_room cimport journal_wait_room_until
from kbroker.ext.log_append cimport AppendResult, log_append_on
from kbroker.ext.log_errors cimport check
from kbroker.ext.log_state cimport DIRECTORIES_MAX, LOG_OK, LOG_STALL, log_ref, log_unref
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_init, pthread_cond_signal, pthread_cond_t,
    pthread_cond_timedwait, pthread_cond_wait, pthread_create, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, pthread_t, timespec_t,
)
from kbroker.ext.producers cimport NOT_GUARDED, ORIGIN_COORDINATOR
from kbroker.ext.sockets cimport (
    SIGNAL_SET_BYTES, cond_init_monotonic, signals_block, signals_restore, thread_name,
)

cdef enum:
    GRACE_MS = 100                  # for the write, behind the wait for room

cdef enum Wait:
    WAIT_DONE
    WAIT_LATE                       # it is still under way
    WAIT_REFUSED                    # the one before it is: nothing was begun

ctypedef struct Appender:
    pthread_mutex_t lock
    pthread_cond_t filled
    pthread_cond_t emptied          # ... or done
    Appending* job
    bint late                       # nobody waits for it any more
    bint lets_go                    # of the last job, which may be the last one of its log
    pthread_t thread

cdef Appender* appenders[DIRECTORIES_MAX]        # by place; made when first needed, never ended


# ---- one append

cdef void appending_unref(Appending* appending) noexcept nogil:
    if atomic_add_i32(&appending.refs, -1) == 0:
        log_unref(appending.log)
        free(appending.batches)
        free(appending)


cdef int check_batches(const uint8_t* p, const uint8_t* end) except -1:
    cdef BatchInfo info
    if p == end:
        raise ClientError(ErrorCode.INVALID_RECORD)
    while p < end:
        if batch_parse(p, end, &info) != BATCH_OK or not batch_crc_ok(p, &info):
            raise ClientError(ErrorCode.CORRUPT_MESSAGE)
        p += info.length
    return 0


cdef Appending* appending_new(Log* log, bytes batches, int64_t room_wait_ms) except NULL:
    cdef const uint8_t* p = batches
    cdef size_t length = <size_t> len(batches)
    cdef Appending* made
    check_batches(p, p + length)
    made = <Appending*> calloc(1, sizeof(Appending))
    if made == NULL:
        raise MemoryError("no memory for an append")
    made.batches = <uint8_t*> malloc(length)
    if made.batches == NULL:
        free(made)
        raise MemoryError("no memory for an append")
    memcpy(made.batches, p, length)
    made.length = length
    made.log = log
    log_ref(log)
    made.refs = 1
    made.first = made.last = -1
    made.terms.origin = ORIGIN_COORDINATOR
    made.terms.guard = NOT_GUARDED
    if room_wait_ms >= 0:
        made.deadline_ns = monotonic_ns() + room_wait_ms * 1000000
    return made


cdef int append_one(Appending* a, uint8_t* p, const BatchInfo* info,
                    AppendResult* result) noexcept nogil:
    """A journal without room is waited for, until the deadline where there is one."""
    cdef int code
    while True:
        code = log_append_on(a.log, &a.terms, p, info, realtime_ms(), result)
        if code != LOG_STALL \
                or journal_wait_room_until(a.log.journal, a.deadline_ns) == JOURNAL_STALL:
            return code


cdef void run(Appending* a) noexcept nogil:
    cdef uint8_t* p = a.batches
    cdef uint8_t* end = p + a.length
    cdef BatchInfo info
    cdef AppendResult result
    while p < end and a.code == LOG_OK:
        batch_parse(p, end, &info)
        a.code = append_one(a, p, &info, &result)
        if a.first < 0:
            a.first = result.base_offset
        a.last = result.last_offset
        p += info.length


# ---- the threads

cdef void* appender_main(void* argument) noexcept nogil:
    cdef Appender* appender = <Appender*> argument
    cdef Appending* job
    thread_name("kbroker-append")
    pthread_mutex_lock(&appender.lock)
    while True:
        while appender.job == NULL:
            pthread_cond_wait(&appender.filled, &appender.lock)
        job = appender.job
        pthread_mutex_unlock(&appender.lock)
        run(job)
        pthread_mutex_lock(&appender.lock)
        atomic_store_i32(&job.done, 1)
        appender.job = NULL
        appender.late = False
        appender.lets_go = True
        pthread_cond_broadcast(&appender.emptied)
        pthread_mutex_unlock(&appender.lock)
        appending_unref(job)
        pthread_mutex_lock(&appender.lock)
        appender.lets_go = False
        pthread_cond_broadcast(&appender.emptied)


cdef Appender* appender_of(int32_t place):
    """NULL: there is no thread to be had."""
    cdef Appender* made = appenders[place]
    cdef char before[SIGNAL_SET_BYTES]
    if made != NULL:
        return made
    made = <Appender*> calloc(1, sizeof(Appender))
    if made == NULL:
        return NULL
    pthread_mutex_init(&made.lock, NULL)
    pthread_cond_init(&made.filled, NULL)
    cond_init_monotonic(&made.emptied)
    signals_block(before)           # they are the control plane's
    if pthread_create(&made.thread, NULL, appender_main, made) != 0:
        free(made)
        made = NULL
    signals_restore(before)
    appenders[place] = made
    return made


cdef bint wait_until(Appender* appender, int64_t ns) noexcept nogil:
    """False: it is too late. The lock is held."""
    cdef timespec_t until = timespec_of(ns)
    return pthread_cond_timedwait(&appender.emptied, &appender.lock, &until) == 0


cdef int have_done(Appender* appender, Appending* a) noexcept nogil:
    cdef int64_t limit_ns = a.deadline_ns + <int64_t> GRACE_MS * 1000000
    cdef bint waits = True
    cdef int waited
    pthread_mutex_lock(&appender.lock)
    while appender.job != NULL and not appender.late and waits:
        waits = wait_until(appender, a.deadline_ns)
    if appender.job != NULL:
        pthread_mutex_unlock(&appender.lock)
        return WAIT_REFUSED
    atomic_add_i32(&a.refs, 1)
    appender.job = a
    pthread_cond_signal(&appender.filled)
    waits = True
    while not atomic_load_i32(&a.done) and waits:
        waits = wait_until(appender, limit_ns)
    appender.late = not atomic_load_i32(&a.done)
    waited = WAIT_LATE if appender.late else WAIT_DONE
    pthread_mutex_unlock(&appender.lock)
    return waited


# ---- the result

cdef tuple take(Appending* a):
    if a.code == LOG_STALL:
        raise ClientError(ErrorCode.REQUEST_TIMED_OUT)
    check(a.log, a.code)
    return a.first, a.last


@cython.final
@cython.no_gc
cdef class LateAppend:
    """An append that is still under way."""
    cdef Appending* core

    def __dealloc__(self):
        if self.core != NULL:
            appending_unref(self.core)

    @property
    def done(self):
        """Whether it is over."""
        return atomic_load_i32(&self.core.done) != 0

    def result(self):
        """First and last offset given. Raises what an append raises; once it is done."""
        if not self.done:
            raise ValueError("the append is still under way")
        return take(self.core)


cdef tuple appending_result(Appending* appending, bint in_time):
    cdef Appender* appender = appender_of(appending.log.directory) if in_time else NULL
    cdef LateAppend owner = LateAppend.__new__(LateAppend)
    cdef int waited = WAIT_DONE
    owner.core = appending
    with nogil:
        if appender == NULL:
            run(appending)
        else:
            waited = have_done(appender, appending)
    if waited == WAIT_LATE:
        raise LateError(owner)
    if waited == WAIT_REFUSED:
        raise ClientError(ErrorCode.REQUEST_TIMED_OUT)
    return take(appending)


cdef void appendings_end() noexcept nogil:
    cdef Appender* appender
    cdef int32_t place
    for place in range(DIRECTORIES_MAX):
        appender = appenders[place]
        if appender == NULL:
            continue
        pthread_mutex_lock(&appender.lock)
        while appender.job != NULL or appender.lets_go:
            pthread_cond_wait(&appender.emptied, &appender.lock)
        pthread_mutex_unlock(&appender.lock)
