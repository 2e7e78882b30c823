"""Connections per peer address (see addresses.pxd): a chained hash table under a lock, which only
the acceptor and closing connections take, and only when there is a limit."""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    TABLE_SLOTS = 1024
    UNLIMITED = 2147483647          # Kafka's default

cdef struct Address:
    Address* next
    int64_t connections
    uint8_t bytes[16]


cdef bint is_limited(Net* net) noexcept nogil:
    return net.settings.connections_per_ip_max < UNLIMITED


cdef Address** find(Net* net, const uint8_t* address) noexcept nogil:
    """Where the pointer to the entry is, or would be."""
    cdef uint32_t hashed = 2166136261u
    cdef int index
    cdef Address** at
    for index in range(16):
        hashed = (hashed ^ address[index]) * 16777619u
    at = &(<Address**> net.addresses)[hashed % TABLE_SLOTS]
    while at[0] != NULL and memcmp(at[0].bytes, address, 16) != 0:
        at = &at[0].next
    return at


cdef bint enter_locked(Net* net, const uint8_t* address) noexcept nogil:
    cdef Address** at
    if net.addresses == NULL:
        net.addresses = calloc(TABLE_SLOTS, sizeof(void*))
        if net.addresses == NULL:
            return False
    at = find(net, address)
    if at[0] == NULL:
        at[0] = <Address*> calloc(1, sizeof(Address))
        if at[0] == NULL:
            return False
        memcpy(at[0].bytes, address, 16)
    if at[0].connections >= net.settings.connections_per_ip_max:
        return False
    at[0].connections += 1
    return True


cdef bint addresses_enter(Net* net, const uint8_t* address) noexcept nogil:
    cdef bint entered
    if not is_limited(net):
        return True
    pthread_mutex_lock(&net.addresses_lock)
    entered = enter_locked(net, address)
    pthread_mutex_unlock(&net.addresses_lock)
    return entered


cdef void addresses_leave(Net* net, const uint8_t* address) noexcept nogil:
    cdef Address** at
    cdef Address* entry
    if not is_limited(net):
        return
    pthread_mutex_lock(&net.addresses_lock)
    at = find(net, address)
    entry = at[0]
    if entry != NULL:
        entry.connections -= 1
        if entry.connections == 0:
            at[0] = entry.next
            free(entry)
    pthread_mutex_unlock(&net.addresses_lock)


cdef void addresses_destroy(Net* net) noexcept nogil:
    cdef Address** slots = <Address**> net.addresses
    cdef Address* entry
    cdef int index
    if slots == NULL:
        return
    for index in range(TABLE_SLOTS):
        while slots[index] != NULL:
            entry = slots[index]
            slots[index] = entry.next
            free(entry)
    free(slots)
    net.addresses = NULL
