"""Connections above max.connections, which the exempt listener may open, or which a lowered limit
leaves: those that were quiet for longest are closed, as Apache Kafka does."""
from kbroker.ext.connection cimport Net, NetThread

# Of the network thread, once a turn: closes at most one, never one of the exempt listener.
cdef void thread_sheds(NetThread* thread) noexcept nogil
# Any thread: there may be too many; each network thread looks soon.
cdef void net_sheds(Net* net) noexcept nogil
