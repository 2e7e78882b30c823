"""The life of a connection: opened by the acceptor, adopted by a network thread, closed by it."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint16_t, uint32_t

from kbroker.ext.connection cimport Connection, Net, NetThread

cdef enum:
    PEER_CLOSED_MS = 1000           # until a connection whose client ended its sending is looked at

# Acceptor: takes over the descriptor. NULL when memory is out; the caller closes it then.
cdef Connection* connection_new(Net* net, int32_t fd, int32_t listener,
                                const void* address) noexcept nogil
# Acceptor: refuse it.
cdef void connection_discard(Connection* connection) noexcept nogil
# Acceptor: give it to the thread with the fewest connections.
cdef void connection_place(Net* net, Connection* connection) noexcept nogil

# ---- network thread ----------------------------------------------------------------------------
# Cancels what is parked and closes the socket. The structure stays valid until the end of the turn.
# reason goes into the log at that level, NULL: no line.
cdef void connection_close(Connection* connection, int32_t level, const char* reason) noexcept nogil
# The client's bytes are at fault: no more reading, closed when what is ready has been sent.
cdef void connection_fail(Connection* connection, int32_t level, const char* reason) noexcept nogil
# No reading for so long (throttling).
cdef void connection_mute(Connection* connection, int64_t milliseconds) noexcept nogil
# Another Stage. Who leaves the open one, or begins in another, has so long to be open (again).
cdef void connection_enter(Connection* connection, int32_t stage) noexcept nogil
# Wait for net_unstall_all. The caller has raised net.stalled and tried once more.
cdef void connection_stall(Connection* connection, uint32_t block) noexcept nogil
cdef void input_free(Connection* connection) noexcept nogil
cdef void connections_retry(NetThread* thread) noexcept nogil
cdef void connections_reap(NetThread* thread) noexcept nogil
# The 16 bytes of a sockaddr, IPv4 mapped; returns the port.
cdef uint16_t address_read(const void* address, uint8_t* into) noexcept nogil
# `address` is 16 bytes, IPv4 mapped; text holds at least 46.
cdef void address_text(const uint8_t* address, char* text) noexcept nogil
cdef void peer_text(Connection* connection, char* text) noexcept nogil
