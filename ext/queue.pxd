"""Bounded queues of copied requests: to the control thread, and to the I/O pool.

A place is reserved before the request is copied, so a full queue costs nothing: the connection
stalls with its frame and tries again when the queue is half empty.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.connection cimport Job, JobQueue, Net, Op, Request

cdef void queue_init(JobQueue* queue, int64_t length_max) noexcept nogil
cdef void queue_destroy(JobQueue* queue) noexcept nogil
cdef bint queue_reserve(JobQueue* queue) noexcept nogil
cdef void queue_unreserve(JobQueue* queue) noexcept nogil
cdef void queue_push(JobQueue* queue, Job* job) noexcept nogil
# Without a place: of a job that had one in another queue. Above the bound by as many as there are
# threads that do this. False: the queue is closed, and the job still the caller's.
cdef bint queue_pass_on(JobQueue* queue, Job* job) noexcept nogil
# The oldest job; NULL after timeout_ms (-1: no timeout), after queue_wake, or when the queue was
# closed.
cdef Job* queue_pop(Net* net, JobQueue* queue, int64_t timeout_ms) noexcept nogil
# One queue_pop, the one in progress or else the next, does not wait.
cdef void queue_wake(JobQueue* queue) noexcept nogil
# Wakes everybody who waits, for good.
cdef void queue_close(JobQueue* queue) noexcept nogil

# Copies the request and parks its Op, of which it holds a reference; NULL when memory is out.
cdef Job* job_new(Request* request) noexcept nogil
# Copies the request into a queue. `forced`: beyond its bound, where the handler cannot be called
# again. H_CONTROL, H_STALL when the queue is full, H_CLOSE.
cdef int request_submit(Request* request, JobQueue* queue, bint forced) noexcept nogil
# Hands the outcome back to the connection's network thread, which frees the job.
cdef void job_finish(Job* job, int32_t outcome) noexcept nogil
cdef void job_free_frame(Job* job) noexcept nogil
