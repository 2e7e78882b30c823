"""An answer of the control plane that waits in purgatory until logs' high watermarks are there."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Job
from kbroker.ext.log_state cimport Log

# Where a log must be: its high watermark at `offset` or above.
ctypedef struct Place:
    Log* log
    int64_t offset

# Give the job back with two bodies, of which one will be sent: `body` when every log is at its
# place, `failed` when one goes offline or is closed before, or when `timeout_ms` are over (0:
# never). The bodies are copied, and the journals are asked to write now. 0, or -1: no memory, and
# the job is still the caller's.
cdef int job_finish_when(Job* job, const Place* places, uint32_t count, const uint8_t* body,
                         uint32_t body_bytes, const uint8_t* failed,
                         uint32_t failed_bytes, int64_t timeout_ms) noexcept nogil
