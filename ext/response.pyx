"""Answers and parked operations (see response.pxd).

All of it runs on the network thread of the connection, but reply_* on an Op's output, which the I/O
pool and the control thread use while nobody else has the Op's answer, and op_hold, op_post and
op_release, which anybody may call.

An Op is freed by its own thread when the last reference goes; another thread that drops the last
one sends it home through the inbox.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_add_relaxed_i32, atomic_exchange_i32, atomic_load_i32, atomic_store_i32,
    atomic_store_ptr, atomic_tally_i64,
)
from kbroker.ext.connection cimport (
    BLOCK_FAILED, BLOCK_INFLIGHT, BLOCK_OUTPUT, Chunk, FLAG_IN_FLUSH, FLAG_IN_READY, OP_DEAD,
    OP_INLINE_BYTES, OP_PARKED, OP_READY, Out, Post, Region,
)
from kbroker.ext.debug cimport OBJECT_DELAYED_OPERATION, debug_assert, object_born, object_died
from kbroker.ext.endian cimport store_be32
from kbroker.ext.marks cimport mark_op, mark_request, marks_free_caches, times_of
from kbroker.ext.network cimport thread_post
from kbroker.ext.out_stream cimport (
    CHUNK_INLINE, out_clear, out_join, out_reserve, region_free, regions_join,
)
from kbroker.ext.timer cimport Timer, timer_arm, timer_disarm
from kbroker.ext.times cimport ApiTimes

cdef enum:
    FREE_OPS_MAX = 1024


# ---- writing an answer -------------------------------------------------------------------------

cdef uint8_t* reply_begin(Reply* reply, uint32_t bytes_max) noexcept nogil:
    cdef uint8_t* at
    if reply.out == NULL and op_park(reply.request) == NULL:
        return NULL
    at = out_reserve(reply.thread, reply.out, bytes_max + REPLY_HEADER_BYTES)
    if at == NULL:
        return NULL
    reply.frame = at
    reply.regions = NULL
    reply.regions_tail = NULL
    reply.region_bytes = 0
    store_be32(at + 4, <uint32_t> reply.correlation_id)
    if reply.tagged_header:
        at[8] = 0
        return at + 9
    return at + 8


cdef int reply_region(Reply* reply, uint32_t written, int32_t fd, int64_t position,
                      int64_t length, void* ref, RegionRelease release) noexcept nogil:
    cdef Region* region = NULL
    if length > 0:
        region = <Region*> malloc(sizeof(Region))
    if region == NULL:
        if release != NULL:
            release(ref)
        return 0 if length == 0 else -1
    region.next = NULL
    region.at = reply.out.written + 8 + reply.tagged_header + written
    region.position = position
    region.length = length
    region.ref = ref
    region.release = release
    region.fd = fd
    if reply.regions_tail == NULL:
        reply.regions = region
    else:
        reply.regions_tail.next = region
    reply.regions_tail = region
    reply.region_bytes += length
    return 0


cdef void reply_end(Reply* reply, uint32_t written) noexcept nogil:
    cdef Out* out = reply.out
    cdef uint32_t total = 8 + reply.tagged_header + written
    debug_assert(out.tail.end + total <= out.tail.capacity, "answer larger than announced")
    store_be32(reply.frame, <uint32_t> (total - 4 + reply.region_bytes))
    out.tail.end += total
    out.written += total
    out.unsent += total + reply.region_bytes
    regions_join(out, reply.regions, reply.regions_tail)
    reply.regions = NULL
    reply.regions_tail = NULL
    reply.bytes = total - 4 + reply.region_bytes
    reply.frame = NULL
    if reply.request == NULL or reply.thread == NULL:
        return                  # of an Op: whoever wrote it says when it is ready
    if reply.request.op != NULL:
        op_ready(reply.request.op)
    else:
        mark_request(reply.request.connection, reply.request)
        flush_later(reply.request.connection)


cdef void reply_abandon(Reply* reply) noexcept nogil:
    """The bytes were only reserved; what is left of the answer is its regions."""
    cdef Region* region
    while reply.regions != NULL:
        region = reply.regions
        reply.regions = region.next
        region_free(region)
    reply.regions_tail = NULL
    reply.region_bytes = 0
    reply.frame = NULL


cdef uint8_t* reply_bare(Reply* reply, uint32_t length) noexcept nogil:
    cdef Out* out = reply.out
    cdef uint8_t* at = out_reserve(reply.thread, out, length + 4)
    if at == NULL:
        return NULL
    store_be32(at, length)
    out.tail.end += length + 4
    out.written += length + 4
    out.unsent += length + 4
    return at + 4


# ---- lists of the thread -----------------------------------------------------------------------

cdef void flush_later(Connection* connection) noexcept nogil:
    """Send the output of this connection at the end of the turn."""
    cdef NetThread* thread = connection.thread
    if connection.flags & FLAG_IN_FLUSH:
        return
    connection.flags |= FLAG_IN_FLUSH
    connection.flush_next = thread.flush
    thread.flush = connection


cdef void ready_later(Connection* connection) noexcept nogil:
    """Go on with the input of this connection in this turn or the next."""
    cdef NetThread* thread = connection.thread
    if connection.flags & FLAG_IN_READY:
        return
    connection.flags |= FLAG_IN_READY
    connection.ready_next = NULL
    if thread.ready == NULL:
        thread.ready = connection
    else:
        thread.ready_tail.ready_next = connection
    thread.ready_tail = connection


cdef void connection_unblock(Connection* connection, uint32_t block) noexcept nogil:
    if not connection.blocked & block:
        return
    connection.blocked &= ~block
    if connection.blocked == 0:
        ready_later(connection)


# ---- operations --------------------------------------------------------------------------------

cdef void op_run(NetThread* thread, Post* post) noexcept nogil:
    """An Op came through the inbox: an event, or its last reference was dropped elsewhere."""
    cdef Op* op = <Op*> post
    atomic_exchange_i32(&op.posted, 0)
    if atomic_load_i32(&op.refs) == 0:
        op_free(op)
        return
    if op.reply.thread == NULL:
        op.missed = 1               # lent to a job: called when that comes back
    elif op.state == OP_PARKED and op.on_event != NULL:
        op.on_event(op)
    op_drop(op)


cdef void op_timer_fired(Timer* timer) noexcept nogil:
    cdef Op* op = <Op*> timer.owner
    if op.state == OP_PARKED and op.on_timeout != NULL:
        op.on_timeout(op)


cdef Op* op_new(NetThread* thread) noexcept nogil:
    cdef Op* op = thread.free_ops
    if op != NULL:
        thread.free_ops = op.next
        thread.free_ops_count -= 1
    else:
        op = <Op*> malloc(sizeof(Op))
        if op == NULL:
            return NULL
    memset(op, 0, sizeof(Op) - OP_INLINE_BYTES)
    op.post.run = op_run
    op.thread = thread
    op.net = thread.net
    op.refs = 1
    op.timer.owner = op
    op.timer.fire = op_timer_fired
    op.chunk.data = op.inline_bytes
    op.chunk.capacity = OP_INLINE_BYTES
    op.chunk.kind = CHUNK_INLINE
    op.out.head = &op.chunk
    op.out.tail = &op.chunk
    op.reply.out = &op.out
    op.reply.thread = thread
    atomic_tally_i64(&thread.counters.ops_live, 1)
    object_born(OBJECT_DELAYED_OPERATION)
    return op


cdef void count_waiting(NetThread* thread, const Op* op, int change) noexcept nogil:
    cdef ApiTimes* times = times_of(thread, op.reply.api_key)
    if times != NULL:
        atomic_tally_i64(&times.waiting, change)


cdef void op_free(Op* op) noexcept nogil:
    cdef NetThread* thread = op.thread
    debug_assert(op.timer.slot == 0, "freed operation with a timer")
    out_clear(thread, &op.out)
    atomic_tally_i64(&thread.counters.ops_live, -1)
    count_waiting(thread, op, -1)
    if thread.parking == op:
        thread.parking = NULL
    object_died(OBJECT_DELAYED_OPERATION)
    if thread.free_ops_count < FREE_OPS_MAX:
        op.next = thread.free_ops
        thread.free_ops = op
        thread.free_ops_count += 1
    else:
        free(op)


cdef Op* op_park(Request* request) noexcept nogil:
    cdef Connection* connection = request.connection
    cdef Op* op = request.op
    if op != NULL:
        return op
    op = op_new(connection.thread)
    if op == NULL:
        return NULL
    op.connection = connection
    op.reply.correlation_id = request.correlation_id
    op.reply.api_key = request.api_key
    op.reply.api_version = request.api_version
    op.reply.tagged_header = request.reply.tagged_header
    op.times.weight = request.weight
    op.times.received = request.received_ns
    op.times.begun = request.begun_ns
    op.thread.parking = op
    count_waiting(op.thread, op, 1)
    if connection.ops_tail == NULL:
        connection.ops = op
    else:
        connection.ops_tail.next = op
    connection.ops_tail = op
    connection.in_flight += 1
    atomic_tally_i64(&connection.thread.counters.parked, 1)
    if connection.in_flight >= connection.net.settings.in_flight_max:
        connection.blocked |= BLOCK_INFLIGHT
    request.op = op
    request.reply.out = &op.out
    return op


cdef void op_ready(Op* op) noexcept nogil:
    cdef Connection* connection = op.connection
    debug_assert(op.reply.thread != NULL, "a job answers by its outcome")
    if op.state != OP_PARKED:
        return
    timer_disarm(&op.thread.wheel, &op.timer)
    op.state = OP_READY
    if op.times.ready == 0:
        op.times.ready = op.thread.clock_ns
    connection.out_of_turn += op.out.unsent
    while connection.ops != NULL and connection.ops.state == OP_READY:
        op = connection.ops
        connection.ops = op.next
        if connection.ops == NULL:
            connection.ops_tail = NULL
        connection.in_flight -= 1
        op.state = OP_DEAD
        op.connection = NULL
        connection.out_of_turn -= op.out.unsent
        out_join(connection.thread, &connection.out, &op.out)
        mark_op(connection, op)
        op_drop(op)
        connection.last_active_ms = connection.thread.now_ms
        flush_later(connection)
    if connection.out_of_turn > connection.net.settings.unsent_bytes_max:
        connection.blocked |= BLOCK_OUTPUT
    if connection.in_flight < connection.net.settings.in_flight_max:
        connection_unblock(connection, BLOCK_INFLIGHT)


cdef void op_close(Op* op, const char* reason) noexcept nogil:
    if op.reply.thread == NULL:
        op.failed = reason              # lent to a job: done when that comes back
        return
    if op.state != OP_PARKED or op.connection == NULL:
        return
    timer_disarm(&op.thread.wheel, &op.timer)
    op.on_event = NULL
    op.on_timeout = NULL
    op.on_cancel = NULL
    op.connection.failed = reason
    op.connection.blocked |= BLOCK_FAILED
    flush_later(op.connection)


cdef void op_deadline(Op* op, int64_t milliseconds) noexcept nogil:
    if op.reply.thread == NULL:
        op.timer.deadline_ms = milliseconds     # lent to a job: armed when that comes back
    elif op.state != OP_PARKED:
        return
    elif milliseconds < 0:
        timer_disarm(&op.thread.wheel, &op.timer)
    else:
        timer_arm(&op.thread.wheel, &op.timer, op.thread.now_ms + milliseconds)


cdef void op_hold(Op* op) noexcept nogil:
    atomic_add_relaxed_i32(&op.refs, 1)


cdef void op_post(Op* op) noexcept nogil:
    if atomic_exchange_i32(&op.posted, 1) == 0:
        op_hold(op)
        thread_post(op.thread, &op.post)


cdef void op_release(Op* op) noexcept nogil:
    if atomic_add_i32(&op.refs, -1) == 0:
        # Nobody has it any more, so it stands in no inbox: send it home to be freed.
        atomic_store_i32(&op.posted, 1)
        thread_post(op.thread, &op.post)


cdef void op_drop(Op* op) noexcept nogil:
    if atomic_add_i32(&op.refs, -1) == 0:
        op_free(op)


cdef void connection_cancel_ops(Connection* connection) noexcept nogil:
    """The connection dies: every handler lets go of what it parked, newest first is as good."""
    cdef Op* op = connection.ops
    cdef Op* following
    connection.ops = NULL
    connection.ops_tail = NULL
    connection.in_flight = 0
    while op != NULL:
        following = op.next
        timer_disarm(&op.thread.wheel, &op.timer)
        atomic_store_ptr(<void**> &op.connection, NULL)     # Request.gone looks
        if op.state == OP_PARKED:
            op.state = OP_DEAD
            # What is lent to a job is cancelled when the job comes back.
            if op.reply.thread != NULL and op.on_cancel != NULL:
                op.on_cancel(op)
        op.state = OP_DEAD
        op_drop(op)
        op = following


cdef void thread_free_caches(NetThread* thread) noexcept nogil:
    cdef Op* op
    cdef Chunk* chunk
    while thread.free_ops != NULL:
        op = thread.free_ops
        thread.free_ops = op.next
        free(op)
    while thread.free_chunks != NULL:
        chunk = thread.free_chunks
        thread.free_chunks = chunk.next
        free(chunk)
    thread.free_ops_count = 0
    thread.free_chunks_count = 0
    marks_free_caches(thread)
