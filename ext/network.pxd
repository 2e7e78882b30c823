"""What other threads may ask of the network threads; the loop itself is in loop.pyx."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.connection cimport Handler, Net, NetThread, Post

# ---- any thread --------------------------------------------------------------------------------
# `post.run` is called on the thread; it is woken only when it sleeps.
cdef void thread_post(NetThread* thread, Post* post) noexcept nogil
cdef void thread_wake(NetThread* thread) noexcept nogil
# There is room again (journal, queue, memory): what returned H_STALL is tried again. Cheap when
# nothing is stalled. network_unstall has the shape of Journal.unstall, its argument is the Net*.
cdef void net_unstall_all(Net* net) noexcept nogil
cdef void network_unstall(void* net) noexcept nogil
# Quiescent states, for memory that handlers read without a lock (registry): what was unlinked
# before net_synchronize is reachable by no network or I/O thread after it. Blocks for at most a
# loop turn; never called by a network or I/O thread, nor with the GIL held. False: somebody who may
# still hold it stands in a disk that hangs; ask again later.
cdef bint net_synchronize(Net* net) noexcept nogil

# ---- before start ------------------------------------------------------------------------------
cdef void net_install(Net* net, int32_t api_key, Handler handler) noexcept nogil

# ---- the loop ----------------------------------------------------------------------------------
# Runs everything in the inbox, in the order in which it was posted.
cdef int64_t thread_run_posts(NetThread* thread) noexcept nogil
# Announces that the thread will sleep; false when there is something to do first.
cdef bint thread_may_sleep(NetThread* thread) noexcept nogil
cdef void turn_begin(uint64_t* turns) noexcept nogil
cdef void turn_end(uint64_t* turns) noexcept nogil
