"""The acceptor: one thread that accepts for all listeners and hands connections to the network
threads. It keeps the limits of connections (accept_limits.pxd) and max.connections.per.ip."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.connection cimport Listener, Net

# Before it listens. Nobody else is on the way to a client on this machine, and there the timers of
# BBR, where the system has that for all, take a third of the processor time of a fetch
# (perf/README.md): clients of other machines alone are paced.
cdef void listener_skips_pacing(Listener* listener) noexcept nogil
cdef int acceptor_start(Net* net) noexcept nogil
# Another max.connections from now on; wakes an acceptor that stands at the one of before.
cdef void acceptor_limit(Net* net, int64_t connections_max) noexcept nogil
# Closes the listening sockets.
cdef void acceptor_stop(Net* net) noexcept nogil
# Have the acceptor run `errand` in its next round, and do not wait for it. With threads_lock held,
# and only while the acceptor runs. net.errand is NULL again after the errand.
cdef void acceptor_post(Net* net, int32_t (*errand)(Net* net) noexcept nogil) noexcept nogil
# Have the acceptor do something that others wait for, or do it here when it does not run. With
# threads_lock held, which is given up while this waits; what `errand` returns.
cdef int acceptor_errand(Net* net, int32_t (*errand)(Net* net) noexcept nogil) noexcept nogil
