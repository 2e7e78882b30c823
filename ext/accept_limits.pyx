"""Limits of connections (see accept_limits.pxd)."""
from kbroker.ext.atomics cimport (
    atomic_exchange_i32, atomic_fence, atomic_load_i32, atomic_load_i64, atomic_store_i32,
    atomic_store_i64,
)
from kbroker.ext.connection cimport LISTENERS_MAX, Listener
from kbroker.ext.quota_bucket cimport Bucket, bucket_free, bucket_limit, bucket_new, bucket_take
from kbroker.ext.quotas cimport Quotas, quota_connect

cdef extern from "<math.h>" nogil:
    const double INFINITY

cdef int64_t NO_LIMIT = 0x7fffffffffffffff


cdef bint limits_init(Net* net) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef bint made = True
    cdef int index
    net.listener_exempt = -1
    net.rate = bucket_new(&quotas.sampling, INFINITY)
    made &= net.rate != NULL
    for index in range(LISTENERS_MAX):
        net.listeners[index].connections_max = NO_LIMIT
        net.listeners[index].rate = bucket_new(&quotas.sampling, INFINITY)
        made &= net.listeners[index].rate != NULL
    return made


cdef void limits_destroy(Net* net) noexcept nogil:
    cdef int index
    bucket_free(<Bucket*> net.rate)
    for index in range(LISTENERS_MAX):
        bucket_free(<Bucket*> net.listeners[index].rate)


cdef void limits_of_broker(Net* net, int32_t listener_exempt, double rate) noexcept nogil:
    atomic_store_i32(&net.listener_exempt, listener_exempt)
    bucket_limit(<Bucket*> net.rate, rate)


cdef void limits_of_listener(Net* net, int32_t listener, int64_t most, double rate) noexcept nogil:
    atomic_store_i64(&net.listeners[listener].connections_max, most)
    bucket_limit(<Bucket*> net.listeners[listener].rate, rate)


cdef bint has_room(Net* net, int32_t listener) noexcept nogil:
    cdef Listener* own = &net.listeners[listener]
    if atomic_load_i64(&own.connections) >= atomic_load_i64(&own.connections_max):
        return False
    return listener == atomic_load_i32(&net.listener_exempt) or (
        atomic_load_i64(&net.connections) < atomic_load_i64(&net.settings.connections_max))


cdef bint listener_is_full(Net* net, int32_t listener) noexcept nogil:
    if has_room(net, listener):
        return False
    atomic_exchange_i32(&net.acceptor_full, 1)
    atomic_fence()
    return not has_room(net, listener)


cdef int64_t connection_counts(Net* net, int32_t listener, const uint8_t* address,
                               int64_t now_ms) noexcept nogil:
    cdef Quotas* quotas = <Quotas*> net.quotas
    cdef int64_t most_ms = quotas.sampling.window_ms
    cdef Listener* own = &net.listeners[listener]
    cdef int32_t exempt = atomic_load_i32(&net.listener_exempt)
    cdef int64_t wait_ms = quota_connect(net, address, now_ms)
    cdef int32_t index
    if wait_ms > 0:
        return wait_ms
    wait_ms = min(bucket_take(&quotas.sampling, <Bucket*> own.rate, 1, now_ms), most_ms)
    own.resumes_ms = max(own.resumes_ms, now_ms + wait_ms)
    if listener == exempt:
        return 0
    wait_ms = min(bucket_take(&quotas.sampling, <Bucket*> net.rate, 1, now_ms), most_ms)
    for index in range(net.listeners_count if wait_ms > 0 else 0):
        if index != exempt:
            own = &net.listeners[index]
            own.resumes_ms = max(own.resumes_ms, now_ms + wait_ms)
    return 0
