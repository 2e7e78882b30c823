"""Net: made, started, stopped and freed. The network half wired; Engine is its Python face."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.connection cimport Net
from kbroker.ext.net_settings cimport NetSettings

# NULL when memory is out. Everything but the settings may still be changed before net_start.
cdef Net* net_create(const NetSettings* settings) noexcept nogil
# The listening socket now belongs to the engine. Its index, -1 when there are too many.
cdef int32_t net_listen(Net* net, int32_t fd, int32_t port, const char* name,
                        int32_t security) noexcept nogil
# 0, or an errno; after an errno only net_stop and net_destroy may follow.
cdef int net_start(Net* net) noexcept nogil
# Other numbers of threads while it runs; 0 or an errno. A connection never changes its network
# thread: with fewer, new connections go to those that are left, the others end with the engine.
cdef int net_resize(Net* net, int64_t network_threads, int64_t io_threads) noexcept nogil
# Stops accepting, answers what is in flight for at most deadline_ms, closes everything, ends the
# threads. May be called twice.
cdef void net_stop(Net* net, int64_t deadline_ms) noexcept nogil
cdef void net_destroy(Net* net) noexcept nogil
