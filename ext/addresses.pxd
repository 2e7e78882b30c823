"""Connections per peer address, for max.connections.per.ip and its overrides.

All are counted, limit or not: a limit that comes while the broker runs holds at once. What is open
above a new limit stays open. The acceptor, closing connections and the control thread meet here.
"""
from libc.stdint cimport int64_t, uint8_t

from kbroker.ext.connection cimport Net

cdef enum:
    ADDRESS_BYTES = 16              # IPv4 as IPv4-mapped IPv6

# False when the address has as many connections as it may; else counted.
cdef bint addresses_enter(Net* net, const uint8_t* address) noexcept nogil
cdef void addresses_leave(Net* net, const uint8_t* address) noexcept nogil
# In place of all limits of before: one for each of `count` addresses, `others` for the rest.
# False: no memory, and some of them are missing.
cdef bint addresses_limit(Net* net, int64_t others, const uint8_t* addresses,
                          const int64_t* limits, int count) noexcept nogil
cdef void addresses_destroy(Net* net) noexcept nogil
