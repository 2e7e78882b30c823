"""Bounded queues of copied requests (see queue.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_load_i32, atomic_tally_i64
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, BLOCK_JOB, Connection, H_CLOSE, H_CONTROL, H_DONE, H_NONE, H_PENDING, H_STALL,
    NetThread, Post, SETS_REFUSED, STAGE_OPEN,
)
from kbroker.ext.connections cimport connection_fail, connection_mute, peer_text
from kbroker.ext.debug cimport OBJECT_REQUEST, object_born, object_died
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_WARNING
from kbroker.ext.memory cimport (
    buffer_alloc, buffer_free, pool_force, pool_give_strange, pool_release, pool_take_strange,
)
from kbroker.ext.network cimport net_unstall_all, thread_post
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal, pthread_cond_timedwait,
    pthread_cond_wait, pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock,
    pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.principal_uses cimport principal_drop, principal_hold
from kbroker.ext.quotas cimport Hold, quota_leave, quota_share
from kbroker.ext.response cimport connection_unblock, op_drop, op_hold, op_park, op_ready
from kbroker.ext.rights cimport (
    RIGHTS_BYTES_MAX, Rights, rights_bytes, rights_ref, rights_unref,
)
from kbroker.ext.sockets cimport cond_init_monotonic
from kbroker.ext.software cimport software_copy
from kbroker.ext.stages cimport SASL_AUTHENTICATE, SASL_HANDSHAKE, stage_refuse, stage_settle
from kbroker.ext.timer cimport timer_arm

cdef enum:
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72


cdef void queue_init(JobQueue* queue, int64_t length_max) noexcept nogil:
    memset(queue, 0, sizeof(JobQueue))
    queue.length_max = length_max
    pthread_mutex_init(&queue.lock, NULL)
    cond_init_monotonic(&queue.filled)


cdef void queue_destroy(JobQueue* queue) noexcept nogil:
    pthread_cond_destroy(&queue.filled)
    pthread_mutex_destroy(&queue.lock)


cdef bint queue_reserve(JobQueue* queue) noexcept nogil:
    cdef bint granted
    pthread_mutex_lock(&queue.lock)
    granted = queue.length < queue.length_max
    if granted:
        atomic_tally_i64(&queue.length, 1)
    else:
        queue.refused = 1
    pthread_mutex_unlock(&queue.lock)
    return granted


cdef void queue_unreserve(JobQueue* queue) noexcept nogil:
    pthread_mutex_lock(&queue.lock)
    atomic_tally_i64(&queue.length, -1)
    pthread_mutex_unlock(&queue.lock)


cdef void queue_push(JobQueue* queue, Job* job) noexcept nogil:
    pthread_mutex_lock(&queue.lock)
    push_locked(queue, job)
    pthread_mutex_unlock(&queue.lock)


cdef void push_locked(JobQueue* queue, Job* job) noexcept nogil:
    job.next = NULL
    if queue.tail == NULL:
        queue.head = job
    else:
        queue.tail.next = job
    queue.tail = job
    if queue.sleepers > 0:
        pthread_cond_signal(&queue.filled)


cdef bint queue_pass_on(JobQueue* queue, Job* job) noexcept nogil:
    cdef bint taken
    pthread_mutex_lock(&queue.lock)
    taken = not queue.closed
    if taken:
        atomic_tally_i64(&queue.length, 1)
        push_locked(queue, job)
    pthread_mutex_unlock(&queue.lock)
    return taken


cdef bint sleep_until_filled(JobQueue* queue, int64_t until_ns) noexcept nogil:
    """One wait; false when the time is over."""
    cdef timespec_t until
    cdef int code
    queue.sleepers += 1
    if until_ns < 0:
        code = pthread_cond_wait(&queue.filled, &queue.lock)
    else:
        until.tv_sec = until_ns // 1000000000
        until.tv_nsec = until_ns % 1000000000
        code = pthread_cond_timedwait(&queue.filled, &queue.lock, &until)
    queue.sleepers -= 1
    return code == 0


cdef Job* queue_pop(Net* net, JobQueue* queue, int64_t timeout_ms) noexcept nogil:
    cdef Job* job
    cdef bint tell = False
    cdef int64_t until_ns = -1
    if timeout_ms >= 0:
        until_ns = monotonic_ns() + timeout_ms * 1000000
    pthread_mutex_lock(&queue.lock)
    while queue.head == NULL and not queue.closed and not queue.woken:
        if not sleep_until_filled(queue, until_ns):
            break
    job = queue.head
    queue.woken = False
    if job != NULL:
        queue.head = job.next
        if queue.head == NULL:
            queue.tail = NULL
        atomic_tally_i64(&queue.length, -1)
        if queue.refused and queue.length <= queue.length_max // 2:
            queue.refused = 0
            tell = True
    pthread_mutex_unlock(&queue.lock)
    if tell:
        net_unstall_all(net)
    return job


cdef void queue_wake(JobQueue* queue) noexcept nogil:
    pthread_mutex_lock(&queue.lock)
    queue.woken = True
    pthread_cond_signal(&queue.filled)
    pthread_mutex_unlock(&queue.lock)


cdef void queue_close(JobQueue* queue) noexcept nogil:
    pthread_mutex_lock(&queue.lock)
    queue.closed = True
    pthread_cond_broadcast(&queue.filled)
    pthread_mutex_unlock(&queue.lock)


# ---- jobs --------------------------------------------------------------------------------------

cdef bint copy_state(Job* job, const Connection* connection) noexcept nogil:
    """What the connection remembers of its SASL exchange, for the next step of it."""
    if connection.state_bytes == 0 or job.api_key not in (SASL_HANDSHAKE, SASL_AUTHENTICATE):
        return True
    job.state = <uint8_t*> malloc(connection.state_bytes)
    if job.state == NULL:
        return False
    memcpy(job.state, connection.state, connection.state_bytes)
    job.state_bytes = connection.state_bytes
    return True


cdef bint copy_software(Job* job, const Connection* connection) noexcept nogil:
    """What subscriptions to clients' metrics may ask for."""
    if connection.software == NULL \
            or job.api_key not in (GET_TELEMETRY_SUBSCRIPTIONS, PUSH_TELEMETRY):
        return True
    job.software = software_copy(connection.software)
    return job.software != NULL


cdef bint copy_frame(Job* job, Request* request, uint64_t length) noexcept nogil:
    """False: request.reason says why."""
    cdef Net* net = request.net
    request.reason = "out of memory"
    if request.connection.stage != STAGE_OPEN:
        job.strange = pool_take_strange(&net.pool, <int64_t> length)
        if job.strange < 0:
            request.reason = "clients that have not logged in hold too much memory; try again"
            return False
    job.frame = buffer_alloc(&net.pool, length, &job.capacity)
    return job.frame != NULL


cdef Job* job_new(Request* request) noexcept nogil:
    """Called on the network thread; the connection waits until the job comes back. NULL:
    request.reason says why."""
    cdef Net* net = request.net
    cdef Job* job = <Job*> calloc(1, sizeof(Job))
    cdef uint64_t length = <uint64_t> (request.end - request.frame)
    if job == NULL:
        request.reason = "out of memory"
        return NULL
    job.api_key = request.api_key
    if not copy_frame(job, request, length) or not copy_state(job, request.connection) \
            or not copy_software(job, request.connection) or op_park(request) == NULL:
        pool_give_strange(&net.pool, job.strange)
        buffer_free(&net.pool, job.frame, job.capacity)
        free(job.state)
        free(job.software)
        free(job)
        return NULL
    request.reason = NULL
    pool_force(&net.pool, <int64_t> job.capacity)
    memcpy(job.frame, request.frame, length)
    job.post.run = job_finished
    job.net = net
    job.op = request.op
    op_hold(job.op)
    job.op.reply.thread = NULL          # lent, see op_deadline and connection_cancel_ops
    job.op.times.begun = 0              # when somebody takes the job
    if request.weight == 0:             # what goes this way is timed in any case
        request.weight = 1
    job.op.times.weight = request.weight
    job.op.thread.parking = NULL
    job.length = <unsigned int> length
    job.body = <unsigned int> (request.p - request.frame)
    job.client_id = -1
    if request.client_id != NULL:
        job.client_id = <int32_t> (<unsigned char*> request.client_id - request.frame)
        job.client_id_length = request.client_id_length
    job.correlation_id = request.correlation_id
    job.listener = request.listener
    job.api_version = request.api_version
    job.flexible = request.flexible
    job.received_ns = request.received_ns
    job.principal = request.principal
    principal_hold(net, job.principal)
    job.stage = request.connection.stage
    job.quota = quota_share(net, <const Hold*> request.quota)
    job.auth = rights_ref(<Rights*> request.connection.auth)
    job.asked = request.asked
    request.asked = NULL
    job.connection_id = request.connection.id
    job.peer_port = request.connection.port
    peer_text(request.connection, job.peer)
    request.connection.blocked |= BLOCK_JOB
    object_born(OBJECT_REQUEST)
    return job


cdef int request_submit(Request* request, JobQueue* queue, bint forced) noexcept nogil:
    cdef Job* job
    if not forced and not queue_reserve(queue):
        return H_STALL
    job = job_new(request)
    if job == NULL:
        if not forced:
            queue_unreserve(queue)
        return H_CLOSE
    if not forced:
        queue_push(queue, job)
    elif not queue_pass_on(queue, job):
        job.reason = "the broker stops"
        job_finish(job, H_CLOSE)
    return H_CONTROL


cdef void job_free_frame(Job* job) noexcept nogil:
    if job.frame == NULL:
        return
    buffer_free(&job.net.pool, job.frame, job.capacity)
    pool_give_strange(&job.net.pool, job.strange)
    job.frame = NULL
    if pool_release(&job.net.pool, <int64_t> job.capacity):
        net_unstall_all(job.net)


cdef void job_finish(Job* job, int32_t outcome) noexcept nogil:
    job_free_frame(job)
    job.outcome = outcome
    thread_post(job.op.thread, &job.post)


cdef void settle(NetThread* thread, Job* job) noexcept nogil:
    """The connection still lives: answer, close, or leave the Op parked."""
    cdef Op* op = job.op
    cdef int32_t level = LOG_WARNING
    if atomic_load_i32(&thread.net.stopping):
        level = LOG_DEBUG               # what nobody will answer any more is dropped then
    if job.sets != 0:
        stage_settle(op.connection, job)
    if job.sets & SETS_REFUSED and op.failed == NULL:
        stage_refuse(op, job)           # and stays blocked
        return
    if job.throttle_ms > 0:
        connection_mute(op.connection, job.throttle_ms)
    connection_unblock(op.connection, BLOCK_JOB)
    if op.failed != NULL:
        connection_fail(op.connection, level, op.failed)
    elif job.outcome == H_DONE or job.outcome == H_NONE:
        op_ready(op)
    elif job.outcome != H_PENDING:
        connection_fail(op.connection, level, job.reason)
    else:
        if op.timer.deadline_ms > 0:
            timer_arm(&thread.wheel, &op.timer, thread.now_ms + op.timer.deadline_ms)
        if op.missed and op.on_event != NULL:
            op.on_event(op)


cdef void take_rights(Connection* connection, Rights* rights) noexcept nogil:
    rights_unref(<Rights*> connection.auth)
    connection.auth = rights_ref(rights)


cdef void drop_large_rights(Connection* connection) noexcept nogil:
    """What is too large to be kept was good for one request."""
    if connection.blocked & BLOCK_CLOSED or connection.auth == NULL \
            or rights_bytes(<Rights*> connection.auth) <= RIGHTS_BYTES_MAX:
        return
    rights_unref(<Rights*> connection.auth)
    connection.auth = NULL


cdef void job_finished(NetThread* thread, Post* post) noexcept nogil:
    """A job came home through the inbox."""
    cdef Job* job = <Job*> post
    cdef Op* op = job.op
    cdef Connection* connection = op.connection
    op.reply.thread = thread
    if connection != NULL:
        if job.settled:
            take_rights(connection, <Rights*> job.auth)
        settle(thread, job)
        if job.settled:
            drop_large_rights(connection)
    elif (job.outcome == H_PENDING or op.resumes) and op.on_cancel != NULL:
        op.on_cancel(op)
    op_drop(op)
    principal_drop(job.net, job.principal)
    quota_leave(job.net, <Hold*> job.quota)
    rights_unref(<Rights*> job.auth)
    rights_unref(<Rights*> job.asked)
    free(job.verdicts)
    free(job.state)
    free(job.software)
    free(job)
    object_died(OBJECT_REQUEST)
