"""Purgatory: requests that wait for a partition to move on.

Floor: above `log` and `response`, below produce and fetch.

A Watch ties an Op to a log until its watermark passes a mark. Watches are embedded in what the
handler allocated for the request; while linked, a watch holds one reference of its op. The handler
holds the log from before `watch` until after `unwatch`, or until it was called back.

The story about locks: a handler checks, links the watch under the log's watch lock (which checks
again), and is called back at most once per watch. Whoever moved a watermark first leaves the log
lock, then calls `log_wake`, which takes the watch lock, unlinks what is satisfied and posts the
ops to their network threads. Posting touches no other lock, so the order is: log lock (released)
- watch lock - inbox. To give up, the network thread calls `unwatch`: after it has returned, no
other thread touches that watch, so its memory may go.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.connection cimport Op
from kbroker.ext.log_state cimport Log

cdef enum WatchKind:
    WATCH_DURABLE = 0       # acks=all: until hw >= mark
    WATCH_DATA = 1          # a fetch: until hw > mark
    WATCH_STABLE = 2        # a fetch of read_committed: until lso > mark

ctypedef struct Watch:
    Watch* next
    Watch* previous
    Log* log
    Op* op
    int64_t mark
    int32_t kind
    int32_t linked          # under the watch lock

ctypedef struct WatchList:
    Watch durable           # ring heads; durable is ordered by mark
    Watch readers
    int64_t count           # atomic: linked watches of either kind
    int64_t readers_count   # atomic

# False: satisfied already, or the log is gone or offline; nothing was linked. For WATCH_DURABLE
# a linked watch counts op.pending down when it is satisfied and posts the op at zero; the others
# post the op each.
cdef bint watch(Watch* watch, int32_t kind, Log* log, Op* op, int64_t mark) noexcept nogil
cdef void unwatch(Watch* watch) noexcept nogil
# After a watermark has moved, or the log went offline or away. Never under the log's lock.
cdef void log_wake(Log* log) noexcept nogil
cdef bint log_has_readers(Log* log) noexcept nogil
# log.on_mark(log.mark_argument) is called once, by whoever calls log_wake, when the high mark
# is at `offset` or above or the log offline or closed; the journal is asked to write. True: that
# is so already, and nothing is called. One mark a log, the last one set. For the control thread,
# which has no Op.
cdef bint log_mark(Log* log, int64_t offset) noexcept nogil
cdef void watchers_free(Log* log) noexcept nogil
