"""An answer of the control plane that waits in purgatory until a log's high watermark is there."""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Job
from kbroker.ext.log_state cimport Log

# Give the job back with two bodies, of which one will be sent: `body` when the high watermark of
# `log` is at `offset` or above, `failed` when the log goes offline or is closed before, or when
# `timeout_ms` are over (0: never). The bodies are copied, and the journal is asked to write now. 0,
# or -1: no memory, and the job is still the caller's.
cdef int job_finish_when(Job* job, Log* log, int64_t offset, const uint8_t* body,
                         uint32_t body_bytes, const uint8_t* failed,
                         uint32_t failed_bytes, int64_t timeout_ms) noexcept nogil
