"""What each request took, from its last byte to the last byte of its answer.

Network thread. Clock readings are few: one after a read, one after a handler, one after a send;
`NetThread.clock_ns` is the last of them, and whoever needs to know the time takes that. Of requests
that one read brought the first is timed and then each TIMED_EVERYth, which counts for those of its
API that were not; what goes to the control thread or the I/O pool is timed in any case.

A request's times are in its Op where it has one (the control thread and the I/O pool write them
while they have it), else in the Request; with the answer they go into a Mark in the connection's
output, and when that has been sent into the histograms of its API.
"""
from libc.stdint cimport int16_t, int64_t, uint32_t

from kbroker.ext.connection cimport Connection, NetThread, Op, Request
from kbroker.ext.times cimport ApiTimes

# The thread's clock, read where something has been done since it was.
cdef int64_t clock_of(NetThread* thread) noexcept nogil
cdef ApiTimes* times_of(NetThread* thread, int16_t api_key) noexcept nogil     # NULL: no memory
# Around a handler of this thread; `length` is the frame's. Unanswered: no answer is due.
cdef void request_begins(Request* request) noexcept nogil
cdef void request_ends(Request* request, uint32_t length, bint unanswered) noexcept nogil
# The answer of a request or of an Op stands at the end of the connection's output.
cdef void mark_request(Connection* connection, Request* request) noexcept nogil
cdef void mark_op(Connection* connection, Op* op) noexcept nogil
# Around sending.
cdef void marks_flush(Connection* connection) noexcept nogil
cdef void marks_sent(Connection* connection) noexcept nogil
cdef void marks_drop(Connection* connection) noexcept nogil
cdef void marks_free_caches(NetThread* thread) noexcept nogil
