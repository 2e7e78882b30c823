"""A produce with acks=all that waits in purgatory until its batches are durable."""
from libc.stdint cimport int32_t, uint32_t

from kbroker.ext.connection cimport Op, Request
from kbroker.ext.produce_wire cimport PartitionResult

# An Op with room for `waiting` partitions; NULL: no memory.
cdef Op* durable_park(Request* request, int32_t waiting) noexcept nogil
# Watch each result that has an end offset. The answer (reply_bytes, begun in op.reply) cannot
# leave before durable_release, whatever happens on other threads.
cdef void durable_watch(Op* op, const PartitionResult* results, uint32_t count,
                        uint32_t reply_bytes) noexcept nogil
cdef void durable_release(Op* op) noexcept nogil
