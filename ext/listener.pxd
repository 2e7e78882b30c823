"""The acceptor: one thread that accepts for all listeners and hands connections to the network
threads. It keeps max.connections and max.connections.per.ip."""
from kbroker.ext.connection cimport Net

cdef int acceptor_start(Net* net) noexcept nogil
# Closes the listening sockets.
cdef void acceptor_stop(Net* net) noexcept nogil
