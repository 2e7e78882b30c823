"""Handshakes of a network thread in the order in which they came (handshakes.pxd)."""
from libc.stdint cimport int64_t

cdef struct Shake

cdef struct HandshakeList:
    Shake* head
    Shake* tail
    int64_t count

# Of one connection.
cdef struct Shake:
    void* connection
    HandshakeList* list             # where it stands; NULL: nowhere
    Shake* next
    Shake* previous
    int64_t begun_ms
