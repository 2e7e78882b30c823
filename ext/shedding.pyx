"""Connections above max.connections (see shedding.pxd)."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_exchange_i32, atomic_fence, atomic_load_i32, atomic_load_relaxed_i64,
)
from kbroker.ext.connection cimport BLOCK_HELD, Connection
from kbroker.ext.connections cimport connection_close
from kbroker.ext.log_ring cimport LOG_WARNING
from kbroker.ext.network cimport thread_wake


cdef int64_t excess(Net* net) noexcept nogil:
    return (atomic_load_relaxed_i64(&net.connections)
            - atomic_load_relaxed_i64(&net.settings.connections_max))


cdef Connection* quietest(NetThread* thread) noexcept nogil:
    """NULL: all are of the listener that is exempt, or stand in a disk."""
    cdef int32_t exempt = atomic_load_i32(&thread.net.listener_exempt)
    cdef Connection* connection = thread.connections
    cdef Connection* found = NULL
    while connection != NULL:
        if connection.listener != exempt and not connection.blocked & BLOCK_HELD and (
                found == NULL or connection.last_active_ms <= found.last_active_ms):
            found = connection
        connection = connection.next
    return found


cdef void look_again(NetThread* thread) noexcept nogil:
    """No sleep before another turn: who stalls tries again as well, which does no harm."""
    atomic_exchange_i32(&thread.retry, 1)
    atomic_fence()
    thread_wake(thread)


cdef void thread_sheds(NetThread* thread) noexcept nogil:
    cdef Net* net = thread.net
    cdef Connection* connection
    if excess(net) <= 0:
        return
    connection = quietest(thread)
    if connection == NULL:
        return
    # Threads that do it at once close no more together than there are too many.
    if atomic_add_i32(&net.shedding, 1) <= excess(net):
        connection_close(connection, LOG_WARNING,
                         "there are more than max.connections, and it was quiet for longest")
    atomic_add_i32(&net.shedding, -1)
    if excess(net) > 0:
        look_again(thread)


cdef void net_sheds(Net* net) noexcept nogil:
    cdef int32_t index
    if excess(net) <= 0:
        return
    for index in range(atomic_load_i32(&net.threads_count)):
        look_again(net.threads[index])
