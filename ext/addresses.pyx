"""Connections per peer address (see addresses.pxd): a chained hash table under a lock."""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.ext.byte_table cimport bytes_hash, process_seed
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock

cdef enum:
    TABLE_SLOTS = 1024
    NO_LIMIT = -1                   # of its own

cdef struct Address:
    Address* next
    int64_t connections
    int64_t limit                   # NO_LIMIT: as the others
    uint8_t bytes[ADDRESS_BYTES]


cdef Address** find(Net* net, const uint8_t* address) noexcept nogil:
    """Where the pointer to the entry is, or would be."""
    cdef uint32_t hashed = bytes_hash(process_seed(), address, ADDRESS_BYTES)
    cdef Address** at = &(<Address**> net.addresses)[hashed % TABLE_SLOTS]
    while at[0] != NULL and memcmp(at[0].bytes, address, ADDRESS_BYTES) != 0:
        at = &at[0].next
    return at


cdef Address* find_or_make(Net* net, const uint8_t* address) noexcept nogil:
    """NULL when memory is out."""
    cdef Address** at
    if net.addresses == NULL:
        net.addresses = calloc(TABLE_SLOTS, sizeof(void*))
        if net.addresses == NULL:
            return NULL
    at = find(net, address)
    if at[0] == NULL:
        at[0] = <Address*> calloc(1, sizeof(Address))
        if at[0] != NULL:
            memcpy(at[0].bytes, address, ADDRESS_BYTES)
            at[0].limit = NO_LIMIT
    return at[0]


cdef void drop_if_empty(Address** at) noexcept nogil:
    cdef Address* entry = at[0]
    if entry.connections == 0 and entry.limit == NO_LIMIT:
        at[0] = entry.next
        free(entry)


cdef bint addresses_enter(Net* net, const uint8_t* address) noexcept nogil:
    cdef Address* entry
    cdef int64_t most
    cdef bint entered = False
    pthread_mutex_lock(&net.addresses_lock)
    entry = find_or_make(net, address)
    if entry != NULL:
        most = net.settings.connections_per_ip_max
        if entry.limit != NO_LIMIT:
            most = entry.limit
        entered = entry.connections < most
        entry.connections += entered
        if not entered:
            drop_if_empty(find(net, address))
    pthread_mutex_unlock(&net.addresses_lock)
    return entered


cdef void addresses_leave(Net* net, const uint8_t* address) noexcept nogil:
    cdef Address** at
    pthread_mutex_lock(&net.addresses_lock)
    at = find(net, address)
    at[0].connections -= 1
    drop_if_empty(at)
    pthread_mutex_unlock(&net.addresses_lock)


cdef void forget_limits(Net* net) noexcept nogil:
    cdef Address** at
    cdef Address* entry
    cdef int index
    for index in range(TABLE_SLOTS if net.addresses != NULL else 0):
        at = &(<Address**> net.addresses)[index]
        while at[0] != NULL:
            entry = at[0]
            entry.limit = NO_LIMIT
            drop_if_empty(at)
            if at[0] == entry:
                at = &entry.next


cdef bint addresses_limit(Net* net, int64_t others, const uint8_t* addresses,
                          const int64_t* limits, int count) noexcept nogil:
    cdef Address* entry
    cdef bint done = True
    cdef int index
    pthread_mutex_lock(&net.addresses_lock)
    net.settings.connections_per_ip_max = others
    forget_limits(net)
    for index in range(count):
        entry = find_or_make(net, addresses + index * ADDRESS_BYTES)
        if entry != NULL:
            entry.limit = limits[index]
        done &= entry != NULL
    pthread_mutex_unlock(&net.addresses_lock)
    return done


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
