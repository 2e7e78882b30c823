"""Who runs a network thread, and what happens to one that stands in a disk that hangs.

A handler that writes says so (a Stay). When one has stood at the same append for half a second, the
watch (watch.pxd) takes it for hanging:

- Its directory is not entered again (`hangs`) until all who stand there have come out.
- Its network thread gets another Runner, which goes on with all connections but the one whose
  request stands. That one is held (BLOCK_HELD): read no further, and closed only afterwards. Back
  from the disk, the first Runner waits until the other has ended its turn and gives way, and then
  goes on where it was, with its request and its turn.
- The I/O pool has one more worker, as long as one of it stands there.

So what a turn still has to do stands in NetThread, not on a stack, and during a stay nothing of the
thread or of its connections is touched.
"""
from libc.stdint cimport int32_t

from kbroker.ext.connection cimport Net, NetThread, Request, Runner

# Around what may write, stay_enters and stay_leaves around each append. stay_ends may wait for the
# network thread.
cdef void stay_begins(Request* request) noexcept nogil
cdef void stay_ends(Request* request) noexcept nogil

# One more, and the first; NULL: no memory. hang_lock is held, or nobody knows the thread.
cdef Runner* runner_new(NetThread* thread) noexcept nogil
# It runs its network thread from here on, with a buffer of its own. hang_lock is held.
cdef void runner_takes(Runner* runner) noexcept nogil
# A line of the log about a log directory; `text` has one %s.
cdef void place_tell(Net* net, int32_t place, const char* text) noexcept nogil
# At the beginning of a turn. True: somebody else runs the thread from here on.
cdef bint runner_gives_way(Runner* runner) noexcept nogil
