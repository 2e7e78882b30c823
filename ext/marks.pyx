"""Times of requests (see marks.pxd)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport (
    atomic_load_relaxed_i64, atomic_load_u64, atomic_store_ptr, atomic_store_u64, atomic_tally_i64,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport API_KEYS_MAX
from kbroker.ext.times cimport (
    MARKS_KEPT, Mark, PHASE_LOCAL, PHASE_QUEUE, PHASE_REMOTE, PHASE_RESPONSE, PHASE_SEND,
    PHASE_TOTAL, PHASES, SLOW_KEPT, Slow, TIMED_EVERY, VERSIONS_COUNTED, histogram_add,
)

cdef enum:
    PRODUCE_KEY = 0


cdef ApiTimes* times_of(NetThread* thread, int16_t api_key) noexcept nogil:
    cdef void** at
    cdef ApiTimes* found
    if api_key < 0 or api_key >= API_KEYS_MAX:
        return NULL
    found = thread.times[api_key]
    if found == NULL:
        at = <void**> &thread.times[api_key]
        atomic_store_ptr(at, calloc(1, sizeof(ApiTimes)))
        found = thread.times[api_key]
    return found


cdef int64_t clock_of(NetThread* thread) noexcept nogil:
    if thread.clock_is_old:
        thread.clock_ns = monotonic_ns()
        thread.clock_is_old = False
    return thread.clock_ns


cdef inline void count_phase(ApiTimes* times, int phase, int64_t ns, int64_t weight) noexcept nogil:
    histogram_add(&times.phases[phase], ns, weight)


cdef void request_begins(Request* request) noexcept nogil:
    cdef NetThread* thread = request.thread
    cdef ApiTimes* times = times_of(thread, request.api_key)
    thread.parking = NULL
    thread.answered = NULL
    request.weight = 0
    if thread.burst % TIMED_EVERY == 0 and times != NULL:
        request.weight = 1 + times.untimed
        clock_of(thread)
    request.begun_ns = thread.clock_ns


cdef void request_ends(Request* request, uint32_t length, bint unanswered) noexcept nogil:
    """The handler has returned: its time is what the answer or the parked operation still lacks."""
    cdef NetThread* thread = request.thread
    cdef ApiTimes* times = times_of(thread, request.api_key)
    cdef Op* parking = thread.parking
    cdef Mark* answered = thread.answered
    cdef int32_t version = request.api_version
    thread.parking = NULL
    thread.answered = NULL
    thread.burst += 1
    thread.clock_is_old = True
    if times == NULL:
        return
    if version >= VERSIONS_COUNTED or version < 0:
        version = VERSIONS_COUNTED - 1
    atomic_tally_i64(&times.versions[version], 1)
    atomic_tally_i64(&times.bytes, length)
    if request.weight == 0:
        atomic_tally_i64(&times.untimed, 1)
        return
    atomic_tally_i64(&times.untimed, 1 - request.weight)
    clock_of(thread)
    if parking != NULL:
        parking.times.done = thread.clock_ns
    elif answered != NULL:
        answered.times.done = thread.clock_ns
        answered.times.ready = thread.clock_ns
    elif unanswered:
        count_phase(times, PHASE_QUEUE, request.begun_ns - request.received_ns, request.weight)
        count_phase(times, PHASE_LOCAL, thread.clock_ns - request.begun_ns, request.weight)
        count_phase(times, PHASE_TOTAL, thread.clock_ns - request.received_ns, request.weight)


# ---- marks -------------------------------------------------------------------------------------

cdef Mark* mark_new(Connection* connection) noexcept nogil:
    """At the end of the output; NULL when memory is out: this answer is not timed."""
    cdef NetThread* thread = connection.thread
    cdef Mark* mark = thread.free_marks
    if mark != NULL:
        thread.free_marks = mark.next
        thread.free_marks_count -= 1
    else:
        mark = <Mark*> malloc(sizeof(Mark))
        if mark == NULL:
            return NULL
    mark.next = NULL
    mark.at = connection.out.written
    if connection.marks_tail == NULL:
        connection.marks = mark
    else:
        connection.marks_tail.next = mark
    connection.marks_tail = mark
    return mark


cdef void mark_free(Connection* connection) noexcept nogil:
    """The first one goes."""
    cdef NetThread* thread = connection.thread
    cdef Mark* mark = connection.marks
    connection.marks = mark.next
    if connection.marks == NULL:
        connection.marks_tail = NULL
    if thread.answered == mark:
        thread.answered = NULL
    if thread.free_marks_count < MARKS_KEPT:
        mark.next = thread.free_marks
        thread.free_marks = mark
        thread.free_marks_count += 1
    else:
        free(mark)


cdef void mark_request(Connection* connection, Request* request) noexcept nogil:
    cdef Mark* mark = mark_new(connection) if request.weight else NULL
    if mark == NULL:
        return
    mark.times.weight = request.weight
    mark.times.received = request.received_ns
    mark.times.begun = request.begun_ns
    mark.times.done = connection.thread.clock_ns        # until the handler has returned
    mark.times.ready = connection.thread.clock_ns
    mark.times.flushed = 0
    mark.correlation_id = request.correlation_id
    mark.api_key = request.api_key
    mark.api_version = request.api_version
    connection.thread.answered = mark


cdef void mark_op(Connection* connection, Op* op) noexcept nogil:
    cdef Mark* mark = mark_new(connection) if op.times.weight else NULL
    cdef int64_t now_ns = connection.thread.clock_ns
    if mark == NULL:
        return
    mark.times = op.times
    if mark.times.begun == 0:
        mark.times.begun = now_ns
    if mark.times.done == 0:
        mark.times.done = now_ns
    if mark.times.ready == 0:
        mark.times.ready = now_ns
    mark.correlation_id = op.reply.correlation_id
    mark.api_key = op.reply.api_key
    mark.api_version = op.reply.api_version
    if connection.thread.parking == op:         # answered before its handler has returned
        connection.thread.parking = NULL
        connection.thread.answered = mark


cdef void marks_flush(Connection* connection) noexcept nogil:
    cdef Mark* mark = connection.marks
    cdef int64_t now_ns
    if mark == NULL:
        return
    now_ns = clock_of(connection.thread)
    while mark != NULL:
        if mark.times.flushed == 0:
            mark.times.flushed = now_ns
        mark = mark.next


cdef void tell_slow(Connection* connection, const Mark* mark, const int64_t* phases) noexcept nogil:
    """For the control thread's log; with no room left it is not told."""
    cdef NetThread* thread = connection.thread
    cdef Slow* slow = &thread.slow[thread.slow_written % SLOW_KEPT]
    if thread.slow_written - atomic_load_u64(&thread.slow_read) >= SLOW_KEPT:
        return
    memcpy(slow.phases, phases, sizeof(slow.phases))
    slow.correlation_id = mark.correlation_id
    slow.api_key = mark.api_key
    slow.api_version = mark.api_version
    slow.connection_id = connection.id
    memcpy(slow.address, connection.address, sizeof(slow.address))
    slow.port = connection.port
    atomic_store_u64(&thread.slow_written, thread.slow_written + 1)


cdef void count(Connection* connection, const Mark* mark, int64_t now_ns) noexcept nogil:
    cdef ApiTimes* times = times_of(connection.thread, mark.api_key)
    cdef int64_t phases[PHASES]
    cdef int64_t slow_ns = atomic_load_relaxed_i64(&connection.net.slow_ns)
    cdef int64_t judged
    cdef int phase
    if times == NULL:
        return
    phases[PHASE_QUEUE] = mark.times.begun - mark.times.received
    phases[PHASE_LOCAL] = mark.times.done - mark.times.begun
    phases[PHASE_REMOTE] = mark.times.ready - mark.times.done
    phases[PHASE_RESPONSE] = mark.times.flushed - mark.times.ready
    phases[PHASE_SEND] = now_ns - mark.times.flushed
    phases[PHASE_TOTAL] = now_ns - mark.times.received
    for phase in range(PHASES):
        count_phase(times, phase, phases[phase], mark.times.weight)
    judged = phases[PHASE_TOTAL]
    if mark.api_key != PRODUCE_KEY:
        judged -= phases[PHASE_REMOTE]          # a long poll, a rebalance: as long as asked for
    if judged >= slow_ns > 0:
        tell_slow(connection, mark, phases)


cdef void marks_sent(Connection* connection) noexcept nogil:
    cdef const Mark* mark
    cdef int64_t now_ns
    if connection.marks == NULL:
        return
    connection.thread.clock_is_old = True
    now_ns = clock_of(connection.thread)
    while connection.marks != NULL:
        mark = connection.marks
        if connection.out.sent < mark.at:
            return
        if connection.out.regions != NULL and connection.out.regions.at <= mark.at:
            return
        count(connection, mark, now_ns)
        mark_free(connection)


cdef void marks_drop(Connection* connection) noexcept nogil:
    while connection.marks != NULL:
        mark_free(connection)


cdef void marks_free_caches(NetThread* thread) noexcept nogil:
    cdef Mark* mark
    cdef int32_t key
    while thread.free_marks != NULL:
        mark = thread.free_marks
        thread.free_marks = mark.next
        free(mark)
    for key in range(API_KEYS_MAX):
        free(thread.times[key])
        thread.times[key] = NULL
