"""The I/O pool (see io_pool.pxd).

A worker takes a job, calls the handler that asked for the pool again, and sends the outcome home.
A handler that stalls here has its job put aside until net_unstall_all. The count of unstalls, read
before the handler is called, tells whether that came between its refusal and the putting aside.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_exchange_i64, atomic_fence, atomic_load_i64, atomic_store_i32,
)
from kbroker.ext.connection cimport H_CLOSE, H_CONTROL, H_IO, H_STALL, Job, NET_THREADS_MAX
from kbroker.ext.frame cimport job_handle
from kbroker.ext.network cimport turn_begin, turn_end
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_wait, pthread_create, pthread_join, pthread_mutex_lock,
    pthread_mutex_unlock, snprintf,
)
from kbroker.ext.queue cimport job_finish, queue_close, queue_pass_on, queue_pop
from kbroker.ext.sockets cimport THREAD_NAME_BYTES, thread_name


cdef bint put_aside(Net* net, Job* job, int64_t unstalls) noexcept nogil:
    """False when there has been room again meanwhile."""
    cdef bint waits
    pthread_mutex_lock(&net.io.lock)
    waits = not net.io.closed and atomic_load_i64(&net.unstalls) == unstalls
    if waits:
        job.next = net.io_stalled
        net.io_stalled = job
    pthread_mutex_unlock(&net.io.lock)
    return waits


cdef int handle(Net* net, Job* job, int32_t index) noexcept nogil:
    """The outcome; H_STALL when the job was put aside."""
    cdef int64_t unstalls
    cdef int outcome
    while True:
        unstalls = atomic_load_i64(&net.unstalls)
        atomic_exchange_i64(&net.stalled, 1)
        atomic_fence()
        outcome = job_handle(job, &net.io_turns[index], &net.io_stays[index])
        if outcome != H_STALL or put_aside(net, job, unstalls):
            return outcome
        if net.io.closed:
            job.reason = "the broker stops"
            return H_CLOSE


cdef void settle(Net* net, Job* job, int outcome) noexcept nogil:
    if outcome == H_STALL:
        return
    if outcome == H_CONTROL:
        if queue_pass_on(&net.control, job):
            return
        job.reason = "the broker stops"
        outcome = H_CLOSE
    if outcome == H_IO:
        job.reason = "a handler asked for the I/O pool in the I/O pool"
        outcome = H_CLOSE
    job_finish(job, outcome)


cdef void park(Net* net, int32_t index) noexcept nogil:
    """Sleep while there are more workers than wanted. One that waits for a job does it first."""
    pthread_mutex_lock(&net.io.lock)
    while index >= net.io_wanted + net.io_held and not net.io.closed:
        pthread_cond_wait(&net.io_parked, &net.io.lock)
    pthread_mutex_unlock(&net.io.lock)


cdef void* worker_main(void* argument) noexcept nogil:
    cdef Net* net = <Net*> argument
    cdef int32_t index = atomic_add_i32(&net.io_next, 1) - 1
    cdef uint64_t* turns = &net.io_turns[index]
    cdef char name[THREAD_NAME_BYTES]
    cdef Job* job
    cdef int outcome
    snprintf(name, THREAD_NAME_BYTES, "kbroker-io-%d", <int> index)
    thread_name(name)
    while True:
        park(net, index)
        job = queue_pop(net, &net.io, -1)
        if job == NULL:
            return NULL
        turn_begin(turns)
        outcome = handle(net, job, index)
        turn_end(turns)
        settle(net, job, outcome)


cdef int add_workers(Net* net) noexcept nogil:
    """io.lock is held. 0, or an errno; what has been started is stopped by io_pool_stop."""
    cdef int code
    pthread_cond_broadcast(&net.io_parked)
    while net.io_count < min(net.io_wanted + net.io_held, <int32_t> NET_THREADS_MAX):
        code = pthread_create(&net.io_threads[net.io_count], NULL, worker_main, net)
        if code != 0:
            return code
        atomic_store_i32(&net.io_count, net.io_count + 1)
    return 0


cdef int io_pool_resize(Net* net, int32_t wanted) noexcept nogil:
    cdef int code
    pthread_mutex_lock(&net.io.lock)
    net.io_wanted = wanted
    code = add_workers(net)
    pthread_mutex_unlock(&net.io.lock)
    return code


cdef void io_pool_hold(Net* net) noexcept nogil:
    pthread_mutex_lock(&net.io.lock)
    net.io_held += 1
    if not net.io.closed:
        add_workers(net)
    pthread_mutex_unlock(&net.io.lock)


cdef void io_pool_stop(Net* net) noexcept nogil:
    cdef Job* job
    cdef Job* following
    cdef int index
    queue_close(&net.io)
    pthread_mutex_lock(&net.io.lock)
    pthread_cond_broadcast(&net.io_parked)
    pthread_mutex_unlock(&net.io.lock)
    for index in range(net.io_count):
        pthread_join(net.io_threads[index], NULL)
    net.io_count = 0
    job = net.io_stalled
    net.io_stalled = NULL
    while job != NULL:
        following = job.next
        job.reason = "the broker stops"
        job_finish(job, H_CLOSE)
        job = following
