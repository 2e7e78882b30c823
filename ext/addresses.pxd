"""Connections per peer address, for max.connections.per.ip; counts nothing without a limit."""
from libc.stdint cimport uint8_t

from kbroker.ext.connection cimport Net

# False when the address has as many connections as it may; else counted.
cdef bint addresses_enter(Net* net, const uint8_t* address) noexcept nogil
cdef void addresses_leave(Net* net, const uint8_t* address) noexcept nogil
cdef void addresses_destroy(Net* net) noexcept nogil
