"""Sums of the network threads' counters.

Each is written by its own thread, and read here as it is.
"""
from libc.stdint cimport int64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i64, atomic_load_relaxed_i64
from kbroker.ext.connection cimport Counters

# Counters is nothing but these, in this order.
NAMES = (
    "requests", "bytes_in", "bytes_out", "sendfile_bytes", "reads", "sends", "turns", "wakeups",
    "posts", "parked", "stalls", "accepted", "closed", "idle_closed", "ops_live", "connections",
)


cdef dict net_stats(Net* net):
    cdef Counters total
    cdef int64_t* sums = <int64_t*> &total
    cdef int64_t* one
    cdef int count = sizeof(Counters) // sizeof(int64_t)
    cdef int thread
    cdef int index
    memset(&total, 0, sizeof(total))
    for thread in range(net.threads_count):
        one = <int64_t*> &net.threads[thread].counters
        for index in range(count):
            sums[index] += atomic_load_relaxed_i64(&one[index])
    stats = {name: sums[index] for index, name in enumerate(NAMES)}
    stats["control_queue"] = net.control.length
    stats["io_queue"] = net.io.length
    stats["request_buffers"] = atomic_load_i64(&net.pool.live_buffers)
    stats["request_buffer_bytes"] = atomic_load_i64(&net.pool.live_bytes)
    stats["request_buffer_bytes_cached"] = net.pool.cached_bytes
    stats["request_bytes_available"] = atomic_load_i64(&net.pool.available)
    stats["log_lines_dropped"] = atomic_load_i64(&net.log.dropped)
    return stats
