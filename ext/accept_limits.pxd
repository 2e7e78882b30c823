"""Which connections may come: so many at a time, and so many in a second.

max.connections of the broker and of a listener, max.connection.creation.rate of both, and the
quota of an address. At a limit of the broker or a listener nobody is accepted there for a while; an
address above its quota is. The listener of brokers among themselves, where it is not the only one,
is exempt from what holds for the whole broker. The acceptor's, but for setting limits.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.connection cimport Net

cdef bint limits_init(Net* net) noexcept nogil
cdef void limits_destroy(Net* net) noexcept nogil
# Any thread; the acceptor sees it when it next looks. A rate of infinity is none.
cdef void limits_of_broker(Net* net, int32_t listener_exempt, double rate) noexcept nogil
cdef void limits_of_listener(Net* net, int32_t listener, int64_t most, double rate) noexcept nogil

# As many as may be; whoever closes next writes to the acceptor's eventfd.
cdef bint listener_is_full(Net* net, int32_t listener) noexcept nogil
# Count a connection that has come. 0: it may stay, though others may have to wait until
# `resumes_ms` of their listener; else the ms for which its address is over its quota.
cdef int64_t connection_counts(Net* net, int32_t listener, const uint8_t* address,
                               int64_t now_ms) noexcept nogil
