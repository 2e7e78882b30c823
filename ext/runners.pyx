"""Who runs a network thread, and stays in log directories (see runners.pxd)."""
from libc.stdint cimport int32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_cas_u64, atomic_fence, atomic_load_i32, atomic_load_ptr, atomic_load_u64,
    atomic_store_ptr, atomic_store_u64,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport BLOCK_HELD, LOG_LINE_BYTES, Net
from kbroker.ext.log_ring cimport LOG_WARNING, net_log_text
from kbroker.ext.network cimport net_unstall_all, thread_wake
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_wait, pthread_mutex_lock, pthread_mutex_unlock, snprintf,
)
from kbroker.ext.quotas cimport Hold
from kbroker.ext.stays cimport STAY_HANGS, Stay


# ---- a stay

cdef void stay_begins(Request* request) noexcept nogil:
    cdef Stay* stay = request.stay
    if request.thread != NULL:
        (<Runner*> stay).connection = request.connection
    atomic_store_u64(&stay.turn, stay.turn + 1)


cdef void place_tell(Net* net, int32_t place, const char* text) noexcept nogil:
    cdef char line[LOG_LINE_BYTES]
    cdef const char* path = net.places[place]
    if path == NULL:
        path = "a log directory"
    snprintf(line, LOG_LINE_BYTES, text, path)
    net_log_text(net, LOG_WARNING, line)


cdef void leave_place(Net* net, Stay* stay) noexcept nogil:
    """Out again; hang_lock is held."""
    cdef int32_t place = stay.hangs_at
    net.hangs[place] -= 1
    if net.hangs[place] == 0:
        atomic_store_u64(&net.hanging, net.hanging & ~(<uint64_t>1 << place))
        place_tell(net, place, "%s: the disk goes on")


cdef void take_back(Net* net, Runner* runner) noexcept nogil:
    """Wait until no other runner runs the thread, and run it. The caller has locked hang_lock."""
    cdef NetThread* thread = runner.thread
    atomic_add_i32(&thread.returning, 1)
    atomic_fence()
    thread_wake(thread)
    while thread.runner != NULL:
        pthread_cond_wait(&net.hang_moves, &net.hang_lock)
    atomic_add_i32(&thread.returning, -1)
    runner_takes(runner)
    thread.clock_is_old = True
    runner.connection.blocked &= ~<unsigned int> BLOCK_HELD


cdef void leave_pool(Net* net) noexcept nogil:
    """The worker in its place sleeps when it has done what it does."""
    pthread_mutex_lock(&net.io.lock)
    net.io_held -= 1
    pthread_mutex_unlock(&net.io.lock)


cdef void forgive(Request* request) noexcept nogil:
    """To stand in a disk is no time of the client's; see hold in watch.pyx."""
    cdef Hold* hold = <Hold*> request.quota
    if hold != NULL and hold.mark_ns != 0:
        hold.mark_ns = monotonic_ns()


cdef void come_back(Request* request) noexcept nogil:
    cdef Net* net = request.net
    cdef Stay* stay = request.stay
    pthread_mutex_lock(&net.hang_lock)
    leave_place(net, stay)
    if request.thread != NULL:
        take_back(net, <Runner*> stay)
    atomic_store_u64(&stay.turn, (stay.turn & ~<uint64_t>STAY_HANGS) + 1)
    pthread_mutex_unlock(&net.hang_lock)
    if request.thread == NULL:
        forgive(request)
        leave_pool(net)
    net_unstall_all(net)


cdef void stay_ends(Request* request) noexcept nogil:
    cdef uint64_t seen = atomic_load_u64(&request.stay.turn)
    if seen & <uint64_t>STAY_HANGS or not atomic_cas_u64(&request.stay.turn, &seen, seen + 1):
        come_back(request)


# ---- runners

cdef void runner_takes(Runner* runner) noexcept nogil:
    cdef NetThread* thread = runner.thread
    thread.runner = runner
    thread.buffer = runner.buffer
    thread.parking = NULL
    thread.answered = NULL


cdef Runner* runner_new(NetThread* thread) noexcept nogil:
    cdef Runner* runner = <Runner*> calloc(1, sizeof(Runner))
    if runner == NULL:
        return NULL
    runner.buffer = <unsigned char*> malloc(thread.buffer_bytes)
    if runner.buffer == NULL:
        free(runner)
        return NULL
    runner.thread = thread
    runner.gone = True
    runner.next = <Runner*> atomic_load_ptr(&thread.runners)
    atomic_store_ptr(&thread.runners, runner)
    return runner


cdef bint runner_gives_way(Runner* runner) noexcept nogil:
    cdef NetThread* thread = runner.thread
    if not atomic_load_i32(&thread.returning):
        return False
    pthread_mutex_lock(&thread.net.hang_lock)
    runner.gone = True
    thread.runner = NULL
    pthread_cond_broadcast(&thread.net.hang_moves)
    pthread_mutex_unlock(&thread.net.hang_lock)
    return True
