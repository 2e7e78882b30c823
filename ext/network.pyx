"""Posting to network threads, waking them, and quiescent states (see network.pxd).

The inbox is a list that posters push to and the thread takes as a whole. A thread that is about to
sleep says so, then looks at its inbox once more; a poster pushes, then looks whether the thread
sleeps. With a full fence between the two on both sides at least one of them sees the other, so no
post waits for a timeout and no eventfd is written to a thread that runs.
"""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_cas_ptr, atomic_exchange_i32, atomic_exchange_i64, atomic_exchange_ptr,
    atomic_fence, atomic_load_i32, atomic_load_i64, atomic_load_ptr, atomic_load_relaxed_i32,
    atomic_load_u64, atomic_store_i32, atomic_store_relaxed_u64, atomic_store_u64, atomic_tally_i64,
)
from kbroker.ext.connection cimport API_KEYS_MAX, Job, Runner
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_mutex_lock, pthread_mutex_unlock,
)
from kbroker.ext.sockets cimport usleep, write
from kbroker.ext.stays cimport Stay, stay_hangs

cdef enum:
    TURN_WAIT_US = 20           # between looks whether a turn is over; most take less


cdef void thread_wake(NetThread* thread) noexcept nogil:
    cdef uint64_t one = 1
    if atomic_load_relaxed_i32(&thread.asleep) and atomic_exchange_i32(&thread.asleep, 0):
        write(thread.event_fd, &one, sizeof(one))


cdef void thread_post(NetThread* thread, Post* post) noexcept nogil:
    cdef void* head = atomic_load_ptr(&thread.inbox)
    while True:
        post.next = <Post*> head
        if atomic_cas_ptr(&thread.inbox, &head, post):
            break
    if head == NULL:        # else an earlier poster has woken it, or is about to
        atomic_fence()
        thread_wake(thread)


cdef int64_t thread_run_posts(NetThread* thread) noexcept nogil:
    cdef Post* taken
    cdef Post* oldest = NULL
    cdef Post* following
    cdef int64_t count = 0
    if atomic_load_ptr(&thread.inbox) == NULL:
        return 0
    taken = <Post*> atomic_exchange_ptr(&thread.inbox, NULL)
    while taken != NULL:            # newest first: turn it round
        following = taken.next
        taken.next = oldest
        oldest = taken
        taken = following
    while oldest != NULL:
        following = oldest.next
        oldest.run(thread, oldest)
        oldest = following
        count += 1
    atomic_tally_i64(&thread.counters.posts, count)
    return count


cdef bint thread_may_sleep(NetThread* thread) noexcept nogil:
    atomic_exchange_i32(&thread.asleep, 1)
    atomic_fence()
    if atomic_load_ptr(&thread.inbox) == NULL and not atomic_load_i32(&thread.retry) \
            and not atomic_load_i32(&thread.returning):
        return True
    atomic_store_i32(&thread.asleep, 0)
    return False


cdef void unstall_io(Net* net) noexcept nogil:
    """Put the jobs that were refused in the I/O pool back at the head of its queue."""
    cdef Job* job
    cdef Job* following
    pthread_mutex_lock(&net.io.lock)
    job = net.io_stalled
    net.io_stalled = NULL
    while job != NULL:
        following = job.next
        job.next = net.io.head
        net.io.head = job
        if net.io.tail == NULL:
            net.io.tail = job
        net.io.length += 1
        job = following
    pthread_cond_broadcast(&net.io.filled)
    pthread_mutex_unlock(&net.io.lock)


cdef void net_unstall_all(Net* net) noexcept nogil:
    cdef int32_t index
    cdef NetThread* thread
    # Who stalls raises the flag, then tries once more: a stall that this does not see is one that
    # has seen the room.
    atomic_fence()
    if not atomic_load_i64(&net.stalled) or not atomic_exchange_i64(&net.stalled, 0):
        return
    atomic_add_i64(&net.unstalls, 1)
    for index in range(atomic_load_i32(&net.threads_count)):
        thread = net.threads[index]
        atomic_exchange_i32(&thread.retry, 1)
        atomic_fence()
        thread_wake(thread)
    unstall_io(net)


cdef void network_unstall(void* net) noexcept nogil:
    net_unstall_all(<Net*> net)


cdef void turn_begin(uint64_t* turns) noexcept nogil:
    """Odd from here on; what the turn reads is read after this."""
    atomic_store_relaxed_u64(turns, turns[0] + 1)
    atomic_fence()


cdef void turn_end(uint64_t* turns) noexcept nogil:
    atomic_store_u64(turns, turns[0] + 1)


cdef bint wait_for_turn(uint64_t* turns, const Stay* stay) noexcept nogil:
    """False: it stands in a disk that hangs."""
    cdef uint64_t seen = atomic_load_u64(turns)
    while seen & 1 and atomic_load_u64(turns) == seen:
        if stay_hangs(stay):
            return False
        usleep(TURN_WAIT_US)
    return True


cdef bint net_synchronize(Net* net) noexcept nogil:
    cdef Runner* runner
    cdef int32_t index
    cdef bint all_left = True
    atomic_fence()
    for index in range(atomic_load_i32(&net.threads_count)):
        runner = <Runner*> atomic_load_ptr(&net.threads[index].runners)
        while runner != NULL:
            all_left &= wait_for_turn(&runner.turns, &runner.stay)
            runner = runner.next
    for index in range(atomic_load_i32(&net.io_count)):
        all_left &= wait_for_turn(&net.io_turns[index], &net.io_stays[index])
    return all_left


cdef void net_install(Net* net, int32_t api_key, Handler handler) noexcept nogil:
    if 0 <= api_key < API_KEYS_MAX:
        net.apis[api_key].handler = handler
