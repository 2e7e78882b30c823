"""How many handshakes of TLS are under way on a thread; the others wait in order.

From its first record on a handshake holds 43 KiB of OpenSSL's. HANDSHAKES_MAX of a thread may; who
comes then waits with nothing but its connection. While somebody waits, a handshake that has taken
HANDSHAKE_MS gives its place up and is closed: thousands that say hello and no more neither fill the
memory nor keep anybody out for long.
"""
from libc.stdint cimport int64_t

from kbroker.ext.connection cimport Connection, NetThread

cdef enum:
    HANDSHAKES_MAX = 512
    HANDSHAKE_MS = 5000

# Whether its handshake may begin, or has; else it waits.
cdef bint handshake_enters(Connection* connection) noexcept nogil
# It is done or closed; of any connection.
cdef void handshake_leaves(Connection* connection) noexcept nogil
# The next that waits, whose place is taken from here on; NULL: nobody waits, or there is no room.
cdef Connection* handshake_next(NetThread* thread) noexcept nogil
# Somebody waits, and this one has taken too long; NULL: nobody, or none.
cdef Connection* handshake_overdue(NetThread* thread) noexcept nogil
# How long nobody can be let in unless something comes; -1: nobody waits.
cdef int64_t handshakes_wait_ms(NetThread* thread) noexcept nogil
