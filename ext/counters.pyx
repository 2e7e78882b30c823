"""Sums of the network threads' counters.

Each is written by its own thread, and read here as it is.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_load_i32, atomic_load_i64, atomic_load_ptr, atomic_load_relaxed_i64, atomic_load_u64,
    atomic_store_u64,
)
from kbroker.ext.connection cimport API_KEYS_MAX, NetThread
from kbroker.ext.connections cimport address_text
from kbroker.ext.net_settings cimport Counters
from kbroker.ext.quotas cimport Quotas
from kbroker.ext.times cimport (
    ApiTimes, PHASES, SLOW_KEPT, Slow, TIME_BUCKETS, VERSIONS_COUNTED,
)

# Counters is nothing but these, in this order.
NAMES = (
    "requests", "bytes_in", "bytes_out", "sendfile_bytes", "reads", "sends", "turns", "wakeups",
    "posts", "parked", "stalls", "accepted", "closed", "idle_closed", "ops_live", "connections",
    "handshakes", "handshakes_failed",
)


cdef dict net_stats(Net* net):
    cdef Counters total
    cdef int64_t* sums = <int64_t*> &total
    cdef int64_t* one
    cdef int count = sizeof(Counters) // sizeof(int64_t)
    cdef int thread
    cdef int index
    memset(&total, 0, sizeof(total))
    for thread in range(atomic_load_i32(&net.threads_count)):
        one = <int64_t*> &net.threads[thread].counters
        for index in range(count):
            sums[index] += atomic_load_relaxed_i64(&one[index])
    stats = {name: sums[index] for index, name in enumerate(NAMES)}
    stats["quota_buckets"] = atomic_load_relaxed_i64(&(<Quotas*> net.quotas).buckets_count)
    stats["control_queue"] = atomic_load_relaxed_i64(&net.control.length)
    stats["io_queue"] = atomic_load_relaxed_i64(&net.io.length)
    stats["request_buffers"] = atomic_load_i64(&net.pool.live_buffers)
    stats["request_buffer_bytes"] = atomic_load_i64(&net.pool.live_bytes)
    stats["request_buffer_bytes_cached"] = atomic_load_relaxed_i64(&net.pool.cached_bytes)
    stats["request_bytes_available"] = atomic_load_i64(&net.pool.available)
    stats["log_lines_dropped"] = atomic_load_i64(&net.log.dropped)
    return stats


cdef tuple histogram_told(const Histogram* histogram):
    return (
        atomic_load_relaxed_i64(&histogram.sum),
        [atomic_load_relaxed_i64(&histogram.buckets[index]) for index in range(TIME_BUCKETS)],
    )


cdef void add_times(ApiTimes* total, ApiTimes* one) noexcept nogil:
    """Both are nothing but int64."""
    cdef int64_t* sums = <int64_t*> total
    cdef const int64_t* words = <const int64_t*> one
    cdef size_t index
    for index in range(sizeof(ApiTimes) // sizeof(int64_t)):
        sums[index] += atomic_load_relaxed_i64(&words[index])


cdef dict net_times(Net* net):
    cdef ApiTimes total
    cdef ApiTimes* one
    cdef int thread
    cdef int key
    cdef int index
    cdef bint any
    told = {}
    for key in range(API_KEYS_MAX):
        memset(&total, 0, sizeof(total))
        any = False
        for thread in range(atomic_load_i32(&net.threads_count)):
            one = <ApiTimes*> atomic_load_ptr(<void**> &net.threads[thread].times[key])
            if one != NULL:
                any = True
                add_times(&total, one)
        if any:
            told[key] = (
                {index: total.versions[index] for index in range(VERSIONS_COUNTED)
                 if total.versions[index]},
                total.bytes,
                total.waiting,
                [histogram_told(&total.phases[index]) for index in range(PHASES)],
            )
    return told


cdef list net_slow(Net* net):
    cdef NetThread* thread
    cdef Slow* slow
    cdef char peer[46]
    cdef int at
    cdef int phase
    told = []
    for at in range(atomic_load_i32(&net.threads_count)):
        thread = net.threads[at]
        while thread.slow_read != atomic_load_u64(&thread.slow_written):
            slow = &thread.slow[thread.slow_read % SLOW_KEPT]
            address_text(slow.address, peer)
            told.append((
                slow.api_key, slow.api_version, slow.correlation_id, slow.connection_id,
                ((<bytes> peer).decode("ascii"), slow.port),
                [slow.phases[phase] for phase in range(PHASES)],
            ))
            atomic_store_u64(&thread.slow_read, thread.slow_read + 1)
    return told
