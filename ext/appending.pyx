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

ctypedef struct Appender:
    pthread_mutex_t lock
    pthread_cond_t filled
    pthread_cond_t ended            # of an append, or of the last reference to it
    Appending* head                 # the one under way, and those behind it
    Appending* tail
    bint late                       # a caller has given up waiting for the head
    bint releasing                  # the reference of the last one, maybe the last of its log
    pthread_t thread

cdef int64_t grace_ns = 10 * 1000000             # the caller waits no longer for a write
cdef Appender* appenders[DIRECTORIES_MAX]        # by place; made when first needed, never ended


cdef int64_t set_append_grace_ns(int64_t ns) noexcept nogil:
    global grace_ns
    cdef int64_t before = grace_ns
    grace_ns = ns
    return before


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
        while appender.head == NULL:
            pthread_cond_wait(&appender.filled, &appender.lock)
        job = appender.head
        pthread_mutex_unlock(&appender.lock)
        run(job)
        pthread_mutex_lock(&appender.lock)
        atomic_store_i32(&job.done, 1)
        appender.head = job.next
        if appender.head == NULL:
            appender.tail = NULL
            appender.late = False
        appender.releasing = True
        pthread_cond_broadcast(&appender.ended)
        pthread_mutex_unlock(&appender.lock)
        appending_unref(job)
        pthread_mutex_lock(&appender.lock)
        appender.releasing = False
        pthread_cond_broadcast(&appender.ended)


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
    cond_init_monotonic(&made.ended)
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
    return pthread_cond_timedwait(&appender.ended, &appender.lock, &until) == 0


cdef bint have_done(Appender* appender, Appending* a) noexcept nogil:
    """Queue an append and wait for it a little: not at all behind one that is late. False: it is
    still under way."""
    cdef int64_t limit_ns = monotonic_ns() + grace_ns
    cdef bint waits
    cdef bint done
    atomic_add_i32(&a.refs, 1)
    pthread_mutex_lock(&appender.lock)
    if appender.tail == NULL:
        appender.head = a
    else:
        appender.tail.next = a
    appender.tail = a
    pthread_cond_signal(&appender.filled)
    waits = not appender.late
    while waits and not atomic_load_i32(&a.done):
        waits = wait_until(appender, limit_ns)
    done = atomic_load_i32(&a.done) != 0
    if not done:
        appender.late = True
    pthread_mutex_unlock(&appender.lock)
    return done


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
    cdef bint done = True
    owner.core = appending
    with nogil:
        if appender == NULL:
            run(appending)
        else:
            done = have_done(appender, appending)
    if not done:
        raise LateError(owner)
    return take(appending)


cdef void appendings_end() noexcept nogil:
    cdef Appender* appender
    cdef int32_t place
    for place in range(DIRECTORIES_MAX):
        appender = appenders[place]
        if appender == NULL:
            continue
        pthread_mutex_lock(&appender.lock)
        while appender.head != NULL or appender.releasing:
            pthread_cond_wait(&appender.ended, &appender.lock)
        pthread_mutex_unlock(&appender.lock)
