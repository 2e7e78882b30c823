"""The loop of a network thread: one turn is the named steps of thread_turn, in that order.

Asleep, a thread is quiescent (`turns` even): it holds no pointer that it read from shared tables.
It sleeps until a socket, a post or its next timer; with none of them it uses no processor time.
"""
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32
from kbroker.ext.clock cimport monotonic_ns, realtime_ms
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, Connection, FLAG_IN_READY, FLAG_PEER_CLOSED, FLAG_READABLE, FLAG_UNWRITABLE,
    Op, STOP_DRAIN,
)
from kbroker.ext.connections cimport connection_close, connections_reap, connections_retry
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
from kbroker.ext.sockets cimport (
    EFD_CLOEXEC, EFD_NONBLOCK, EPOLLERR, EPOLLET, EPOLLHUP, EPOLLIN, EPOLLOUT, EPOLLRDHUP,
    EPOLL_CLOEXEC, EPOLL_CTL_ADD, epoll_create1, epoll_ctl, epoll_event_t, epoll_wait, eventfd,
    THREAD_NAME_BYTES, thread_hurries, thread_name,
)
from kbroker.ext.timer cimport wheel_advance, wheel_init, wheel_wait_ms

cdef enum:
    EVENTS_MAX = 256
    FETCH = 1


cdef NetThread* thread_new(Net* net, int index) noexcept nogil:
    cdef NetThread* thread = <NetThread*> calloc(1, sizeof(NetThread))
    cdef epoll_event_t event
    if thread == NULL:
        return NULL
    thread.net = net
    thread.index = index
    thread.buffer_bytes = <uint64_t> net.settings.read_bytes
    thread.buffer = <unsigned char*> malloc(thread.buffer_bytes)
    thread.epoll_fd = epoll_create1(EPOLL_CLOEXEC)
    thread.event_fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)
    # Edge-triggered: every write to it is an event, it need not be read.
    event.events = EPOLLIN | <uint32_t> EPOLLET
    event.data.ptr = NULL
    if thread.buffer == NULL or thread.epoll_fd < 0 or thread.event_fd < 0 \
            or epoll_ctl(thread.epoll_fd, EPOLL_CTL_ADD, thread.event_fd, &event) < 0:
        thread_free(thread)
        return NULL
    read_clocks(thread)
    wheel_init(&thread.wheel, thread.now_ms)
    return thread


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
    free(thread.buffer)
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

cdef int wait_for_events(NetThread* thread, epoll_event_t* events) noexcept nogil:
    cdef int64_t wait_ms = 0
    cdef int64_t room_ms
    cdef int count
    turn_end(&thread.turns)
    if thread.ready == NULL and thread.handshakes == NULL and thread.closed == NULL \
            and thread_may_sleep(thread):
        wait_ms = wheel_wait_ms(&thread.wheel)
        room_ms = handshakes_wait_ms(thread)
        if room_ms >= 0 and (wait_ms < 0 or room_ms < wait_ms):
            wait_ms = room_ms
    if wait_ms > 1000000000:
        wait_ms = 1000000000
    count = epoll_wait(thread.epoll_fd, events, EVENTS_MAX, <int> wait_ms)
    atomic_store_i32(&thread.asleep, 0)
    turn_begin(&thread.turns)
    thread.counters.turns += 1
    if count < 0 and errno != EINTR:
        net_log(thread.net, LOG_ERROR, "epoll_wait failed, errno %ld", errno, 0)
    return count if count > 0 else 0


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


cdef void run_events(NetThread* thread, epoll_event_t* events, int count) noexcept nogil:
    cdef int index
    cdef Connection* connection
    for index in range(count):
        connection = <Connection*> events[index].data.ptr
        if connection == NULL:
            thread.counters.wakeups += 1
        else:
            handle_event(connection, events[index].events)


cdef void run_ready(NetThread* thread) noexcept nogil:
    """Connections that may go on; who gets onto the list meanwhile has its turn in the next one."""
    cdef Connection* connection = thread.ready
    cdef Connection* following
    thread.ready = NULL
    thread.ready_tail = NULL
    while connection != NULL:
        following = connection.ready_next
        connection.flags &= ~<uint32_t> FLAG_IN_READY
        if not connection.blocked & BLOCK_CLOSED:
            connection_progress(connection)
        connection = following


cdef void hurry(Connection* connection) noexcept nogil:
    """Fetches wait for records no longer: they get what there is. Produce goes on waiting for the
    disk, and the control thread ends what waits for it."""
    cdef Op* op = connection.ops
    while op != NULL:
        if op.reply.api_key == FETCH:
            op_deadline(op, 0)
        op = op.next


cdef void close_connections(NetThread* thread, bint only_quiet) noexcept nogil:
    """only_quiet: those that wait for no answer and have nothing left to send."""
    cdef Connection* connection = thread.connections
    cdef Connection* following
    while connection != NULL:
        following = connection.next
        if not only_quiet or (connection.ops == NULL and encrypted_is_sent(connection)):
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


cdef bint thread_turn(NetThread* thread, epoll_event_t* events) noexcept nogil:
    cdef int count = wait_for_events(thread, events)
    read_clocks(thread)
    thread_run_posts(thread)
    connections_retry(thread)
    run_events(thread, events, count)
    run_ready(thread)
    thread_handshakes(thread)
    thread_sheds(thread)
    wheel_advance(&thread.wheel, thread.now_ms)
    thread_flush(thread)
    connections_reap(thread)
    return not is_done(thread)


cdef void* thread_main(void* argument) noexcept nogil:
    cdef NetThread* thread = <NetThread*> argument
    cdef epoll_event_t events[EVENTS_MAX]
    cdef char name[THREAD_NAME_BYTES]
    snprintf(name, THREAD_NAME_BYTES, "kbroker-net-%d", <int> thread.index)
    thread_name(name)
    thread_hurries()
    turn_begin(&thread.turns)
    while thread_turn(thread, events):
        pass
    run_ready(thread)
    while thread.handshakes != NULL:
        thread_handshakes(thread)
    thread_flush(thread)
    connections_reap(thread)
    turn_end(&thread.turns)
    atomic_store_i32(&thread.running, 0)
    return NULL
