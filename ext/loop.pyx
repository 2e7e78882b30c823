"""The loop of a network thread: one turn is the named steps of finish_turn, in that order.

Asleep, a thread is quiescent (`turns` even): it holds no pointer that it read from shared tables.
It sleeps until a socket, a post or its next timer; with none of them it uses no processor time.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32, atomic_tally_i64
from kbroker.ext.clock cimport monotonic_ns, realtime_ms
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, BLOCK_HELD, Connection, EVENTS_MAX, FLAG_IN_READY, FLAG_PEER_CLOSED,
    FLAG_READABLE, FLAG_UNWRITABLE, Op, Runner, STOP_DRAIN,
)
from kbroker.ext.connections cimport (
    PEER_CLOSED_MS, connection_close, connections_reap, connections_retry,
)
from kbroker.ext.encrypted cimport encrypted_is_sent, thread_handshakes
from kbroker.ext.handshakes cimport handshakes_wait_ms
from kbroker.ext.input cimport connection_progress
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_ERROR, net_log
from kbroker.ext.network cimport (
    thread_may_sleep, thread_run_posts, turn_begin, turn_end,
)
from kbroker.ext.output cimport thread_flush
from kbroker.ext.posix cimport EINTR, close, errno, snprintf
from kbroker.ext.response cimport flush_later, op_deadline, thread_free_caches
from kbroker.ext.shedding cimport thread_sheds
from kbroker.ext.runners cimport runner_gives_way, runner_new
from kbroker.ext.sockets cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, epoll_create1, epoll_ctl, epoll_event_t, epoll_wait, eventfd,
    THREAD_NAME_BYTES, thread_hurries, thread_name,
)
from kbroker.ext.timer cimport timer_arm, wheel_advance, wheel_init, wheel_wait_ms

cdef enum:
    FETCH = 1

cdef enum Ending:                   # of a turn
    TURN_OVER
    TURN_LAST                       # there is nothing left to do
    TURN_GIVEN                      # somebody else runs the thread


cdef NetThread* thread_new(Net* net, int index) noexcept nogil:
    cdef NetThread* thread = <NetThread*> calloc(1, sizeof(NetThread))
    cdef epoll_event_t event
    if thread == NULL:
        return NULL
    thread.net = net
    thread.index = index
    thread.buffer_bytes = <uint64_t> net.settings.read_bytes
    thread.runner = runner_new(thread)
    thread.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    thread.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    # Edge-triggered: every write to it is an event, it need not be read.
    event.events = EPOLLIN | <uint32_t> EPOLLET
    event.data.ptr = NULL
    if thread.runner == NULL or thread.epoll_fd < 0 or thread.event_fd < 0 \
            or epoll_ctl(thread.epoll_fd, EPOLL_CTL_ADD, thread.event_fd, &event) < 0:
        thread_free(thread)
        return NULL
    thread.buffer = thread.runner.buffer
    read_clocks(thread)
    wheel_init(&thread.wheel, thread.now_ms)
    return thread


cdef void runners_free(Runner* runner) noexcept nogil:
    cdef Runner* following
    while runner != NULL:
        following = runner.next
        free(runner.buffer)
        free(runner)
        runner = following


cdef void thread_free(NetThread* thread) noexcept nogil:
    """After the thread has ended; what was posted since is run here and finds no connection."""
    while thread_run_posts(thread):
        pass
    thread_free_caches(thread)
    connections_reap(thread)
    if thread.epoll_fd >= 0:
        close(thread.epoll_fd)
    if thread.event_fd >= 0:
        close(thread.event_fd)
    runners_free(<Runner*> thread.runners)
    free(thread.burst_clear)
    free(thread.burst_records)
    free(thread)


cdef void read_clocks(NetThread* thread) noexcept nogil:
    thread.now_ns = monotonic_ns()
    thread.clock_ns = thread.now_ns
    thread.clock_is_old = False
    thread.burst = 0
    thread.now_ms = thread.now_ns // 1000000
    thread.wall_ms = realtime_ms()


# ---- steps -------------------------------------------------------------------------------------

cdef void wait_for_events(Runner* runner) noexcept nogil:
    cdef NetThread* thread = runner.thread
    cdef int64_t wait_ms = 0
    cdef int64_t room_ms
    cdef int count
    turn_end(&runner.turns)
    if thread.ready == NULL and thread.handshakes == NULL and thread.closed == NULL \
            and thread_may_sleep(thread):
        wait_ms = wheel_wait_ms(&thread.wheel)
        room_ms = handshakes_wait_ms(thread)
        if room_ms >= 0 and (wait_ms < 0 or room_ms < wait_ms):
            wait_ms = room_ms
    if wait_ms > 1000000000:
        wait_ms = 1000000000
    count = epoll_wait(thread.epoll_fd, thread.events, EVENTS_MAX, <int> wait_ms)
    atomic_store_i32(&thread.asleep, 0)
    turn_begin(&runner.turns)
    atomic_tally_i64(&thread.counters.turns, 1)
    if count < 0 and errno != EINTR:
        net_log(thread.net, LOG_ERROR, "epoll_wait failed, errno %ld", errno, 0)
    thread.events_count = max(count, 0)
    thread.events_at = 0


cdef void handle_event(Connection* connection, uint32_t events) noexcept nogil:
    if connection.blocked & BLOCK_CLOSED:
        return
    if events & EPOLLOUT and connection.flags & FLAG_UNWRITABLE:
        connection.flags &= ~<uint32_t> FLAG_UNWRITABLE
        if connection.tls != NULL:
            connection.flags |= FLAG_READABLE       # reading may have waited for it as well
        flush_later(connection)
    if events & (EPOLLRDHUP | EPOLLHUP | EPOLLERR):
        connection.flags |= FLAG_PEER_CLOSED | FLAG_READABLE
        if events & (EPOLLHUP | EPOLLERR) and connection.blocked:
            connection_close(connection, LOG_DEBUG, "reset")
            return
    if events & EPOLLIN:
        connection.flags |= FLAG_READABLE
    if connection.flags & FLAG_READABLE:
        connection_progress(connection)
    if events & EPOLLRDHUP and not connection.blocked & BLOCK_CLOSED:
        timer_arm(&connection.thread.wheel, &connection.idle,
                  connection.thread.now_ms + PEER_CLOSED_MS)


cdef void run_events(NetThread* thread) noexcept nogil:
    cdef const epoll_event_t* event
    while thread.events_at < thread.events_count:
        event = &thread.events[thread.events_at]
        thread.events_at += 1
        if event.data.ptr == NULL:
            atomic_tally_i64(&thread.counters.wakeups, 1)
        else:
            handle_event(<Connection*> event.data.ptr, event.events)


cdef void run_ready(NetThread* thread) noexcept nogil:
    """Connections that may go on; who gets onto the list meanwhile has its turn in the next one."""
    cdef Connection* connection
    if thread.going == NULL:
        thread.going = thread.ready
        thread.ready = NULL
        thread.ready_tail = NULL
    while thread.going != NULL:
        connection = thread.going
        thread.going = connection.ready_next
        connection.flags &= ~<uint32_t> FLAG_IN_READY
        if not connection.blocked & BLOCK_CLOSED:
            connection_progress(connection)


cdef void hurry(Connection* connection) noexcept nogil:
    """Fetches wait for records no longer: they get what there is. Produce goes on waiting for the
    disk, and the control thread ends what waits for it."""
    cdef Op* op = connection.ops
    while op != NULL:
        if op.reply.api_key == FETCH:
            op_deadline(op, 0)
        op = op.next


cdef void close_connections(NetThread* thread, bint only_quiet) noexcept nogil:
    """only_quiet: those that wait for no answer and have nothing left to send. One whose request
    stands in a disk waits for its answer."""
    cdef Connection* connection = thread.connections
    cdef Connection* following
    while connection != NULL:
        following = connection.next
        if not only_quiet or (connection.ops == NULL and not connection.blocked & BLOCK_HELD
                              and encrypted_is_sent(connection)):
            connection_close(connection, LOG_DEBUG, NULL)
        else:
            hurry(connection)
        connection = following


cdef bint is_done(NetThread* thread) noexcept nogil:
    """Stopping: quiet connections go, then the others when their answers are out or time is up."""
    cdef int stopping = atomic_load_i32(&thread.net.stopping)
    if stopping == 0:
        return False
    thread.draining = 1
    close_connections(thread, stopping == STOP_DRAIN)
    return thread.connections == NULL


cdef void finish_turn(NetThread* thread) noexcept nogil:
    """What a turn does once it has its events. A runner that takes over begins with what is left
    of the turn in which the one before it was caught."""
    read_clocks(thread)
    thread_run_posts(thread)
    connections_retry(thread)
    run_events(thread)
    run_ready(thread)
    thread_handshakes(thread)
    thread_sheds(thread)
    wheel_advance(&thread.wheel, thread.now_ms)
    thread_flush(thread)
    connections_reap(thread)


cdef int turn_ends(NetThread* thread) noexcept nogil:
    finish_turn(thread)
    return TURN_LAST if is_done(thread) else TURN_OVER


cdef int thread_turn(Runner* runner) noexcept nogil:
    if runner_gives_way(runner):
        return TURN_GIVEN
    wait_for_events(runner)
    return turn_ends(runner.thread)


cdef void end(NetThread* thread) noexcept nogil:
    run_ready(thread)
    while thread.handshakes != NULL:
        thread_handshakes(thread)
    thread_flush(thread)
    connections_reap(thread)


cdef void* runner_main(void* argument) noexcept nogil:
    cdef Runner* runner = <Runner*> argument
    cdef NetThread* thread = runner.thread
    cdef char name[THREAD_NAME_BYTES]
    cdef int ending
    snprintf(name, THREAD_NAME_BYTES, "kbroker-net-%d", <int> thread.index)
    thread_name(name)
    thread_hurries()
    turn_begin(&runner.turns)
    ending = turn_ends(thread)      # a stop may have been announced before this thread ran
    while ending == TURN_OVER:
        ending = thread_turn(runner)
    if ending == TURN_LAST:
        end(thread)
        atomic_store_i32(&thread.running, 0)
    turn_end(&runner.turns)
    return NULL
