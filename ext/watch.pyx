"""The watch (see watch.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.atomics cimport (
    atomic_cas_u64, atomic_load_i32, atomic_load_i64, atomic_load_ptr, atomic_load_u64,
    atomic_store_u64,
)
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.connection cimport BLOCK_HELD, Connection, NetThread, Runner
from kbroker.ext.io_pool cimport io_pool_hold
from kbroker.ext.loop cimport runner_main
from kbroker.ext.network cimport net_unstall_all
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_timedwait, pthread_create, pthread_join,
    pthread_mutex_lock, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.quotas cimport Hold
from kbroker.ext.runners cimport place_tell, runner_new, runner_takes
from kbroker.ext.sockets cimport thread_name
from kbroker.ext.stays cimport STAY_HANGS, Stay

# All of it but watch_start and watch_stop runs with hang_lock held.

cdef enum:
    LOOK_MS = 100
    HANGS_MS = 500                  # in the same append
    LOOKS_A_RETRY = 10


cdef Runner* spare_of(NetThread* thread) noexcept nogil:
    """One that is not used, or a new one; NULL: no memory."""
    cdef Runner* runner = <Runner*> atomic_load_ptr(&thread.runners)
    while runner != NULL and not runner.gone:
        runner = runner.next
    if runner == NULL:
        return runner_new(thread)
    if runner.started:
        pthread_join(runner.pthread, NULL)      # it is about to end
        runner.started = False
    return runner


cdef bint stands(Stay* stay) noexcept nogil:
    """Has it been seen in the same append for long?"""
    cdef int64_t now_ns = monotonic_ns()
    cdef uint64_t turn = atomic_load_u64(&stay.turn)
    cdef uint64_t steps = atomic_load_u64(&stay.steps)
    if not turn & steps & 1 or turn & <uint64_t>STAY_HANGS or turn != stay.seen_turn \
            or steps != stay.seen_steps:
        stay.seen_turn = turn
        stay.seen_steps = steps
        stay.seen_ns = now_ns
        return False
    return now_ns - stay.seen_ns >= <int64_t> HANGS_MS * 1000000


cdef bint seize(Net* net, Stay* stay) noexcept nogil:
    """False: it is over after all."""
    cdef uint64_t seen = stay.seen_turn
    cdef int32_t place = atomic_load_i32(&stay.place)
    if atomic_load_u64(&stay.steps) != stay.seen_steps:
        return False                # it is elsewhere by now
    if not atomic_cas_u64(&stay.turn, &seen, seen | <uint64_t>STAY_HANGS):
        return False
    stay.hangs_at = place
    net.hangs[place] += 1
    if net.hangs[place] == 1:
        atomic_store_u64(&net.hanging, net.hanging | <uint64_t>1 << place)
        place_tell(net, place, "%s: the disk hangs, a write has stood for half a second")
    return True


cdef void hold(Connection* connection) noexcept nogil:
    connection.blocked |= BLOCK_HELD
    if connection.quota != NULL:
        (<Hold*> connection.quota).mark_ns = 0      # to stand in a disk is no time of the client's


cdef void take_over(NetThread* thread) noexcept nogil:
    cdef Runner* runner = thread.runner
    cdef Runner* spare
    if runner == NULL or not stands(&runner.stay):
        return
    spare = spare_of(thread)
    if spare == NULL or not seize(thread.net, &runner.stay):
        return
    hold(runner.connection)
    spare.gone = False
    runner_takes(spare)
    if pthread_create(&spare.pthread, NULL, runner_main, spare) == 0:
        spare.started = True
        return
    spare.gone = True               # nobody runs it until one is back
    thread.runner = NULL
    pthread_cond_broadcast(&thread.net.hang_moves)


cdef void look(Net* net) noexcept nogil:
    cdef int32_t index
    for index in range(atomic_load_i32(&net.threads_count)):
        take_over(net.threads[index])
    for index in range(atomic_load_i32(&net.io_count)):
        if stands(&net.io_stays[index]) and seize(net, &net.io_stays[index]):
            io_pool_hold(net)


cdef void* watch_main(void* argument) noexcept nogil:
    cdef Net* net = <Net*> argument
    cdef timespec_t until
    cdef uint64_t looks = 0
    thread_name("kbroker-watch")
    pthread_mutex_lock(&net.hang_lock)
    while not net.watch_stops:
        look(net)
        looks += 1
        if looks % LOOKS_A_RETRY == 0 and atomic_load_i64(&net.stalled):
            net_unstall_all(net)        # who has waited for as long as it may is answered
        until = timespec_of(monotonic_ns() + <int64_t> LOOK_MS * 1000000)
        pthread_cond_timedwait(&net.hang_moves, &net.hang_lock, &until)
    pthread_mutex_unlock(&net.hang_lock)
    return NULL


cdef int watch_start(Net* net) noexcept nogil:
    cdef int code = pthread_create(&net.watch, NULL, watch_main, net)
    net.watch_runs = code == 0
    return code


cdef void watch_stop(Net* net) noexcept nogil:
    if not net.watch_runs:
        return
    pthread_mutex_lock(&net.hang_lock)
    net.watch_stops = True
    pthread_cond_broadcast(&net.hang_moves)
    pthread_mutex_unlock(&net.hang_lock)
    pthread_join(net.watch, NULL)
    net.watch_runs = False
