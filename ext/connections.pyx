"""The life of a connection (see connections.pxd).

A connection that closes may stand in the thread's lists of this turn, and functions further up the
stack may still hold it. So closing only empties it and marks it BLOCK_CLOSED; it is freed by
connections_reap at the end of the turn, when it stands in no list.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset, strchr

from kbroker.ext.addresses cimport addresses_leave
from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_add_u64, atomic_exchange_i32, atomic_fence, atomic_load_i32,
    atomic_load_relaxed_i64, atomic_tally_i64,
)
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, BLOCK_FAILED, BLOCK_HELD, BLOCK_MEMORY, BLOCK_MUTED, BLOCK_STALL, FLAG_CLOSES,
    FLAG_IN_FLUSH, FLAG_IN_HANDSHAKES, FLAG_IN_READY, FLAG_IN_STALLED, FLAG_PEER_CLOSED,
    LOG_LINE_BYTES, Post, SECURITY_PLAINTEXT, SECURITY_SASL_PLAINTEXT, STAGE_OPEN, STAGE_SASL,
    STAGE_TLS,
)
from kbroker.ext.debug cimport OBJECT_CONNECTION, object_born, object_died
from kbroker.ext.handshakes cimport handshake_leaves
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_ERROR, LOG_WARNING, net_log_text
from kbroker.ext.marks cimport marks_drop
from kbroker.ext.memory cimport buffer_free, pool_give_strange, pool_release
from kbroker.ext.network cimport net_unstall_all, thread_post
from kbroker.ext.out_stream cimport out_clear
from kbroker.ext.posix cimport close, snprintf
from kbroker.ext.principal_uses cimport principal_drop
from kbroker.ext.quotas cimport Hold, quota_leave
from kbroker.ext.response cimport connection_cancel_ops, connection_unblock, flush_later
from kbroker.ext.sockets cimport (
    AF_INET, AF_INET6, EPOLLET, EPOLLIN, EPOLLOUT, EPOLLRDHUP, EPOLL_CTL_ADD, MSG_DONTWAIT,
    MSG_PEEK, epoll_ctl, epoll_event_t, inet_ntop, ntohs, recv, sockaddr_in6_t, sockaddr_in_t,
    sockaddr_t, write,
)
from kbroker.ext.timer cimport Timer, timer_arm, timer_disarm
from kbroker.ext.tls cimport Tls, tls_free

cdef enum:
    ADDRESS_TEXT_BYTES = 46


cdef uint16_t address_read(const void* address, uint8_t* into) noexcept nogil:
    cdef const sockaddr_in_t* four
    cdef const sockaddr_in6_t* six
    if (<const sockaddr_t*> address).sa_family == AF_INET:
        four = <const sockaddr_in_t*> address
        memset(into, 0, 10)
        into[10] = 0xff
        into[11] = 0xff
        memcpy(into + 12, &four.sin_addr, 4)
        return ntohs(four.sin_port)
    if (<const sockaddr_t*> address).sa_family == AF_INET6:
        six = <const sockaddr_in6_t*> address
        memcpy(into, &six.sin6_addr, 16)
        return ntohs(six.sin6_port)
    memset(into, 0, 16)
    return 0


cdef bint is_mapped(const uint8_t* address) noexcept nogil:
    cdef int index
    for index in range(10):
        if address[index] != 0:
            return False
    return address[10] == 0xff and address[11] == 0xff


cdef void address_text(const uint8_t* address, char* text) noexcept nogil:
    if is_mapped(address):
        inet_ntop(AF_INET, address + 12, text, ADDRESS_TEXT_BYTES)
    else:
        inet_ntop(AF_INET6, address, text, ADDRESS_TEXT_BYTES)


cdef void peer_text(Connection* connection, char* text) noexcept nogil:
    address_text(connection.address, text)


# ---- opening -----------------------------------------------------------------------------------

cdef Connection* connection_new(Net* net, int32_t fd, int32_t listener,
                                const void* address) noexcept nogil:
    cdef Connection* connection = <Connection*> calloc(1, sizeof(Connection))
    if connection == NULL:
        return NULL
    connection.net = net
    connection.fd = fd
    connection.listener = listener
    connection.id = atomic_add_u64(&net.next_connection_id, 1)
    connection.post.run = adopt
    connection.idle.owner = connection
    connection.idle.fire = idle_fired
    connection.mute.owner = connection
    connection.mute.fire = mute_fired
    connection.port = address_read(address, connection.address)
    atomic_add_i64(&net.connections, 1)
    atomic_add_i64(&net.listeners[listener].connections, 1)
    object_born(OBJECT_CONNECTION)
    return connection


cdef void connection_discard(Connection* connection) noexcept nogil:
    atomic_add_i64(&connection.net.connections, -1)
    atomic_add_i64(&connection.net.listeners[connection.listener].connections, -1)
    if connection.fd >= 0:
        close(connection.fd)
    free(connection)
    object_died(OBJECT_CONNECTION)


cdef void connection_place(Net* net, Connection* connection) noexcept nogil:
    cdef int32_t index
    cdef int32_t best = 0
    for index in range(1, min(atomic_load_i32(&net.threads_count),
                              atomic_load_i32(&net.threads_wanted))):
        if (atomic_load_relaxed_i64(&net.threads[index].assigned)
                < atomic_load_relaxed_i64(&net.threads[best].assigned)):
            best = index
    connection.thread = net.threads[best]
    atomic_add_i64(&connection.thread.assigned, 1)
    thread_post(connection.thread, &connection.post)


cdef int32_t first_stage(const Connection* connection) noexcept nogil:
    cdef int32_t security = connection.net.listeners[connection.listener].security
    if security == SECURITY_PLAINTEXT:
        return STAGE_OPEN
    return STAGE_SASL if security == SECURITY_SASL_PLAINTEXT else STAGE_TLS


cdef void adopt(NetThread* thread, Post* post) noexcept nogil:
    cdef Connection* connection = <Connection*> post
    cdef epoll_event_t event
    connection.next = thread.connections
    if thread.connections != NULL:
        thread.connections.previous = connection
    thread.connections = connection
    atomic_tally_i64(&thread.counters.accepted, 1)
    atomic_tally_i64(&thread.counters.connections, 1)
    connection.last_active_ms = thread.now_ms
    if thread.draining:
        connection_close(connection, LOG_DEBUG, NULL)
        return
    connection_enter(connection, first_stage(connection))
    # Edge-triggered and armed once for both directions: no epoll_ctl afterwards.
    event.events = EPOLLIN | EPOLLOUT | EPOLLRDHUP | <uint32_t> EPOLLET
    event.data.ptr = connection
    if epoll_ctl(thread.epoll_fd, EPOLL_CTL_ADD, connection.fd, &event) < 0:
        connection_close(connection, LOG_ERROR, "epoll_ctl failed")


# ---- timers ------------------------------------------------------------------------------------

cdef void watch(Connection* connection) noexcept nogil:
    """Arm the timer for when the connection may be idle for too long, or its stage is over."""
    cdef NetThread* thread = connection.thread
    cdef int64_t idle_ms_max = thread.net.settings.idle_ms_max
    cdef int64_t ends_ms = connection.stage_ends_ms
    cdef int64_t idle_from_ms = connection.last_active_ms
    if connection.ops != NULL or connection.blocked & BLOCK_HELD:
        idle_from_ms = thread.now_ms
    if idle_ms_max > 0 and (ends_ms == 0 or idle_from_ms + idle_ms_max < ends_ms):
        ends_ms = idle_from_ms + idle_ms_max
    if connection.flags & FLAG_PEER_CLOSED and connection.tls == NULL \
            and (ends_ms == 0 or thread.now_ms + PEER_CLOSED_MS < ends_ms):
        ends_ms = thread.now_ms + PEER_CLOSED_MS
    if ends_ms > 0:
        timer_arm(&thread.wheel, &connection.idle, ends_ms)


cdef bint has_left(Connection* connection) noexcept nogil:
    """Whether the client has closed its side and all that it sent was taken. Not looked for under
    TLS: requests may stand in OpenSSL's buffer."""
    cdef uint8_t byte
    return connection.flags & FLAG_PEER_CLOSED and connection.tls == NULL \
        and connection.in_begin == connection.in_end \
        and recv(connection.fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT) == 0


cdef void idle_fired(Timer* timer) noexcept nogil:
    """The timer is not moved at each request; it looks when it fires."""
    cdef Connection* connection = <Connection*> timer.owner
    cdef NetThread* thread = connection.thread
    cdef int64_t idle_ms_max = thread.net.settings.idle_ms_max
    if connection.stage != STAGE_OPEN and thread.now_ms >= connection.stage_ends_ms:
        connection_close(connection, LOG_WARNING,
                         "did not say who it is within kbroker.handshake.timeout.ms")
    elif has_left(connection):
        connection_close(connection, LOG_DEBUG, "closed by the client, which waits for no answer")
    elif connection.ops != NULL or connection.blocked & BLOCK_HELD or idle_ms_max <= 0 \
            or thread.now_ms - connection.last_active_ms < idle_ms_max:
        watch(connection)
    else:
        atomic_tally_i64(&thread.counters.idle_closed, 1)
        connection_close(connection, LOG_DEBUG, "idle for longer than connections.max.idle.ms")


cdef void connection_enter(Connection* connection, int32_t stage) noexcept nogil:
    """The time that all stages together may take begins with the first. The timer is not moved
    when the last is over."""
    connection.stage = stage
    if stage == STAGE_OPEN:
        connection.stage_ends_ms = 0
    elif connection.stage_ends_ms == 0:
        connection.stage_ends_ms = (connection.thread.now_ms
                                    + connection.net.settings.handshake_ms_max)
    else:
        return
    if stage != STAGE_OPEN or connection.idle.slot == 0:
        watch(connection)


cdef void mute_fired(Timer* timer) noexcept nogil:
    connection_unblock(<Connection*> timer.owner, BLOCK_MUTED)


cdef void connection_mute(Connection* connection, int64_t milliseconds) noexcept nogil:
    cdef int64_t until_ms = connection.thread.now_ms + milliseconds
    if connection.blocked & BLOCK_CLOSED:
        return
    if connection.blocked & BLOCK_MUTED and connection.mute.deadline_ms >= until_ms:
        return                      # an earlier answer was throttled for longer
    connection.blocked |= BLOCK_MUTED
    timer_arm(&connection.thread.wheel, &connection.mute, until_ms)


# ---- stalling ----------------------------------------------------------------------------------

cdef void connection_stall(Connection* connection, uint32_t block) noexcept nogil:
    cdef NetThread* thread = connection.thread
    connection.blocked |= block
    atomic_tally_i64(&thread.counters.stalls, 1)
    if connection.flags & FLAG_IN_STALLED:
        return
    connection.flags |= FLAG_IN_STALLED
    connection.stalled_next = thread.stalled
    thread.stalled = connection


cdef void connections_retry(NetThread* thread) noexcept nogil:
    """There is room again: everything that stalled tries once more, in the order it stalled."""
    cdef Connection* connection
    cdef Connection* oldest = NULL
    cdef Connection* following
    if not atomic_load_i32(&thread.retry) or not atomic_exchange_i32(&thread.retry, 0):
        return
    connection = thread.stalled
    thread.stalled = NULL
    while connection != NULL:
        following = connection.stalled_next
        connection.stalled_next = oldest
        oldest = connection
        connection = following
    while oldest != NULL:
        connection = oldest
        oldest = connection.stalled_next
        connection.flags &= ~<uint32_t> FLAG_IN_STALLED
        connection_unblock(connection, BLOCK_STALL | BLOCK_MEMORY)


# ---- closing -----------------------------------------------------------------------------------

cdef void log_close(Connection* connection, int32_t level, const char* reason) noexcept nogil:
    cdef char text[LOG_LINE_BYTES]
    cdef char peer[ADDRESS_TEXT_BYTES]
    peer_text(connection, peer)
    cdef bint ipv6 = strchr(peer, c":") != NULL
    snprintf(text, LOG_LINE_BYTES, "closed connection %lu of %s%s%s:%d on %s: %s",
             <unsigned long> connection.id, <const char*> b"[" if ipv6 else <const char*> b"", peer,
             <const char*> b"]" if ipv6 else <const char*> b"", <int> connection.port,
             connection.net.listeners[connection.listener].name, reason)
    net_log_text(connection.net, level, text)


cdef void input_free(Connection* connection) noexcept nogil:
    """Give back the connection's buffer and its reservation."""
    cdef Net* net = connection.net
    cdef int64_t reserved = connection.reserved
    if connection.in_buffer == NULL:
        return
    if connection.wanted != 0:
        atomic_add_i64(&net.pool.waiting_bytes, -reserved)
        connection.wanted = 0
    buffer_free(&net.pool, connection.in_buffer, connection.in_capacity)
    pool_give_strange(&net.pool, connection.strange)
    connection.strange = 0
    connection.in_buffer = NULL
    connection.in_capacity = 0
    connection.in_begin = 0
    connection.in_end = 0
    connection.reserved = 0
    if pool_release(&net.pool, reserved):
        net_unstall_all(net)


cdef void unlink(Connection* connection) noexcept nogil:
    cdef NetThread* thread = connection.thread
    if connection.previous != NULL:
        connection.previous.next = connection.next
    else:
        thread.connections = connection.next
    if connection.next != NULL:
        connection.next.previous = connection.previous
    atomic_tally_i64(&thread.counters.connections, -1)
    atomic_tally_i64(&thread.counters.closed, 1)


cdef void tell_acceptor(Net* net) noexcept nogil:
    cdef uint64_t one = 1
    atomic_fence()
    if atomic_load_i32(&net.acceptor_full) and atomic_exchange_i32(&net.acceptor_full, 0):
        write(net.acceptor_event_fd, &one, sizeof(one))


cdef void connection_close(Connection* connection, int32_t level,
                           const char* reason) noexcept nogil:
    cdef NetThread* thread = connection.thread
    cdef Net* net = connection.net
    if connection.blocked & BLOCK_CLOSED:
        return
    if connection.blocked & BLOCK_HELD:
        connection.flags |= FLAG_CLOSES
        return
    connection.blocked |= BLOCK_CLOSED
    if reason != NULL:
        log_close(connection, level, reason)
    timer_disarm(&thread.wheel, &connection.idle)
    timer_disarm(&thread.wheel, &connection.mute)
    connection_cancel_ops(connection)
    marks_drop(connection)
    out_clear(thread, &connection.out)
    input_free(connection)
    quota_leave(net, <Hold*> connection.quota)
    connection.quota = NULL
    if connection.auth != NULL and net.auth_free != NULL:
        net.auth_free(connection.auth)
    principal_drop(net, connection.principal)
    connection.principal = 0
    free(connection.state)
    free(connection.software)
    connection.software = NULL
    handshake_leaves(connection)
    tls_free(<Tls*> connection.tls)
    connection.tls = NULL
    close(connection.fd)
    connection.fd = -1
    unlink(connection)
    connection.closed_next = thread.closed
    thread.closed = connection
    addresses_leave(net, connection.address)
    atomic_add_i64(&thread.assigned, -1)
    atomic_add_i64(&net.connections, -1)
    atomic_add_i64(&net.listeners[connection.listener].connections, -1)
    tell_acceptor(net)


cdef void connection_fail(Connection* connection, int32_t level,
                          const char* reason) noexcept nogil:
    if connection.blocked & (BLOCK_CLOSED | BLOCK_FAILED):
        return
    connection.blocked |= BLOCK_FAILED
    if reason != NULL:
        log_close(connection, level, reason)
    flush_later(connection)


cdef void leave_stalled(Connection* connection) noexcept nogil:
    cdef Connection** at = &connection.thread.stalled
    while at[0] != NULL and at[0] != connection:
        at = &at[0].stalled_next
    if at[0] != NULL:
        at[0] = connection.stalled_next


cdef void connections_reap(NetThread* thread) noexcept nogil:
    cdef Connection* connection = thread.closed
    cdef Connection* following
    thread.closed = NULL
    while connection != NULL:
        following = connection.closed_next
        if connection.flags & (FLAG_IN_READY | FLAG_IN_FLUSH | FLAG_IN_HANDSHAKES):
            connection.closed_next = thread.closed      # those lists are emptied next turn
            thread.closed = connection
        else:
            if connection.flags & FLAG_IN_STALLED:
                leave_stalled(connection)
            free(connection)
            object_died(OBJECT_CONNECTION)
        connection = following
