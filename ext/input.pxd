"""Reading: bytes from a socket, in place where they are whole frames, kept where they are not."""
from kbroker.ext.connection cimport Connection

# Goes on with what is kept, then reads once. Network thread; the connection may be closed by it.
cdef void connection_progress(Connection* connection) noexcept nogil
