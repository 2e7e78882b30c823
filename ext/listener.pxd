"""The acceptor: one thread that accepts for all listeners and hands connections to the network
threads. It keeps max.connections and max.connections.per.ip."""
from libc.stdint cimport int64_t

from kbroker.ext.connection cimport Net

cdef int acceptor_start(Net* net) noexcept nogil
# Another max.connections from now on; wakes an acceptor that stands at the one of before.
cdef void acceptor_limit(Net* net, int64_t connections_max) noexcept nogil
# Closes the listening sockets.
cdef void acceptor_stop(Net* net) noexcept nogil
