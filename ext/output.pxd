"""Sending: the output of a connection, bytes and file regions in their order."""
from kbroker.ext.connection cimport Connection, NetThread

# Sends as much as the socket takes; what is left goes when EPOLLOUT says so. May close it.
cdef void connection_flush(Connection* connection) noexcept nogil
# The end of a turn: one send for each connection that has output.
cdef void thread_flush(NetThread* thread) noexcept nogil
