"""The network threads: an epoll loop of named steps, and what other threads may ask of them."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.connection cimport Connection, Handler, Net, NetThread, Post, Request

# ---- any thread ---------------------------------------------------------------------------------
# `post.run` is called on the thread; it is woken only when it sleeps.
cdef void thread_post(NetThread* thread, Post* post) noexcept nogil
# There is room again (journal, queue, memory): what returned H_STALL is tried again. Cheap when
# nothing is stalled. network_unstall has the shape of Journal.unstall, its argument is the Net*.
cdef void net_unstall_all(Net* net) noexcept nogil
cdef void network_unstall(void* net) noexcept nogil
# Quiescent states, for memory that handlers read without a lock (registry): what was unlinked
# before net_synchronize is reachable by no network or I/O thread after it. Blocks for at most a
# loop turn; never called by a network or I/O thread, nor with the GIL held.
cdef void net_synchronize(Net* net) noexcept nogil
# Log line of the data plane, drained by Engine.next_log_lines(); format as printf, never blocks.
cdef void net_log(Net* net, int32_t level, const char* text, int64_t a, int64_t b) noexcept nogil

# ---- before start ---------------------------------------------------------------------------------
cdef void net_install(Net* net, int32_t api_key, Handler handler) noexcept nogil

# ---- network thread -------------------------------------------------------------------------------
cdef void connection_close(Connection* connection, const char* reason) noexcept nogil
cdef void connection_mute(Connection* connection, int64_t milliseconds) noexcept nogil
