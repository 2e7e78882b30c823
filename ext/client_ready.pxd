"""What is ready to be sent: full, past its linger, flushed, or memory is short. Loop thread."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.client_peers cimport Sender

# Marks the brokers that have something and can take it; when the next batch will be ready.
cdef int64_t ready_look(Sender* s, int64_t now_ns) noexcept nogil
# Compares the queues of every topic's partitions, for the sticky partitioner (KIP-794).
cdef void ready_loads(Sender* s, int64_t now_ns) noexcept nogil
