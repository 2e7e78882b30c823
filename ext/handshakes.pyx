"""How many handshakes are under way (see handshakes.pxd)."""
from libc.stdint cimport int64_t

from kbroker.ext.handshake_list cimport HandshakeList, Shake


cdef void append(HandshakeList* list_, Connection* connection) noexcept nogil:
    cdef Shake* shake = &connection.shake
    shake.connection = connection
    shake.list = list_
    shake.next = NULL
    shake.previous = list_.tail
    if list_.tail != NULL:
        list_.tail.next = shake
    else:
        list_.head = shake
    list_.tail = shake
    list_.count += 1


cdef void begins(Connection* connection) noexcept nogil:
    connection.shake.begun_ms = connection.thread.now_ms
    append(&connection.thread.shaking, connection)


cdef bint has_room(NetThread* thread) noexcept nogil:
    return thread.shaking.count < HANDSHAKES_MAX


cdef bint handshake_enters(Connection* connection) noexcept nogil:
    cdef NetThread* thread = connection.thread
    if connection.shake.list == NULL:
        if has_room(thread) and thread.awaiting.head == NULL:
            begins(connection)
        else:
            append(&thread.awaiting, connection)
    return connection.shake.list == &thread.shaking


cdef void handshake_leaves(Connection* connection) noexcept nogil:
    cdef Shake* shake = &connection.shake
    if shake.list == NULL:
        return
    if shake.previous != NULL:
        shake.previous.next = shake.next
    else:
        shake.list.head = shake.next
    if shake.next != NULL:
        shake.next.previous = shake.previous
    else:
        shake.list.tail = shake.previous
    shake.list.count -= 1
    shake.list = NULL


cdef Connection* handshake_next(NetThread* thread) noexcept nogil:
    cdef Connection* connection
    if thread.awaiting.head == NULL or not has_room(thread):
        return NULL
    connection = <Connection*> thread.awaiting.head.connection
    handshake_leaves(connection)
    begins(connection)
    return connection


cdef Connection* handshake_overdue(NetThread* thread) noexcept nogil:
    if thread.awaiting.head == NULL or has_room(thread) or left_ms(thread) > 0:
        return NULL
    return <Connection*> thread.shaking.head.connection


cdef int64_t left_ms(NetThread* thread) noexcept nogil:
    """Of the oldest, where there is one."""
    return thread.shaking.head.begun_ms + HANDSHAKE_MS - thread.now_ms


cdef int64_t handshakes_wait_ms(NetThread* thread) noexcept nogil:
    if thread.awaiting.head == NULL:
        return -1
    return 0 if has_room(thread) else max(left_ms(thread), <int64_t> 0)
