"""Waiting for durability: one watch a partition; see produce_wait.pxd and purgatory.pxd.

The answer was written when the batches were appended; only error codes may still change, at the
places that were noted then. `op.pending` counts watches that are not satisfied yet, and one more
until all are linked.
"""
from libc.stdint cimport int16_t, uint8_t
from libc.stdlib cimport free, malloc

from kbroker.ext.atomics cimport (
    atomic_add_i64,
    atomic_load_i32,
    atomic_load_i64,
    atomic_store_i64,
)
from kbroker.ext.broker cimport COUNTED_PRODUCE_LATE, broker_of, count_error
from kbroker.ext.error_codes cimport KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT
from kbroker.ext.log_state cimport Log, log_ref, log_unref
from kbroker.ext.purgatory cimport WATCH_DURABLE, Watch, unwatch, watch
from kbroker.ext.response cimport op_park, op_post, op_ready, reply_end
from kbroker.ext.wire cimport store_i16

# A partition that is waited for; in op.u when there is one, else in a block of its own.
ctypedef struct Wait:
    Watch watch
    Log* log
    uint8_t* error_at

ctypedef struct WaitWords:          # over op.u
    Wait single
    Wait* waits
    uint32_t count
    uint32_t reply_bytes


cdef void let_go(Wait* wait) noexcept nogil:
    unwatch(&wait.watch)
    log_unref(wait.log)


cdef void waits_free(WaitWords* words) noexcept nogil:
    if words.waits != &words.single:
        free(words.waits)
    words.waits = NULL


cdef void finish(Op* op) noexcept nogil:
    """Answer; a batch that is not durable by now gets the error that says why."""
    cdef WaitWords* words = <WaitWords*>op.u
    cdef Wait* wait
    cdef int16_t code
    cdef uint32_t i
    for i in range(words.count):
        wait = &words.waits[i]
        if atomic_load_i64(&wait.log.hw) < wait.watch.mark:
            code = REQUEST_TIMED_OUT
            if atomic_load_i32(&wait.log.offline) or atomic_load_i32(&wait.log.closed):
                code = KAFKA_STORAGE_ERROR
            store_i16(wait.error_at, code)
            count_error(broker_of(op.connection.net), COUNTED_PRODUCE_LATE, code)
        let_go(wait)
    waits_free(words)
    reply_end(&op.reply, words.reply_bytes)
    op_ready(op)


cdef void on_durable(Op* op) noexcept nogil:
    if atomic_load_i64(&op.pending) == 0:
        finish(op)


cdef void on_cancel(Op* op) noexcept nogil:
    cdef WaitWords* words = <WaitWords*>op.u
    cdef uint32_t i
    for i in range(words.count):
        let_go(&words.waits[i])
    waits_free(words)


cdef Op* durable_park(Request* request, int32_t waiting) noexcept nogil:
    cdef Wait* several = NULL
    cdef WaitWords* words
    cdef Op* op
    if waiting > 1:
        several = <Wait*>malloc(<size_t>waiting * sizeof(Wait))
        if several == NULL:
            return NULL
    op = op_park(request)
    if op == NULL:
        free(several)
        return NULL
    words = <WaitWords*>op.u
    words.count = 0
    words.waits = several if several != NULL else &words.single
    op.on_event = on_durable
    op.on_timeout = finish
    op.on_cancel = on_cancel
    return op


cdef void durable_watch(Op* op, const PartitionResult* results, uint32_t count,
                        uint32_t reply_bytes) noexcept nogil:
    cdef WaitWords* words = <WaitWords*>op.u
    cdef const PartitionResult* result
    cdef Wait* wait
    cdef uint32_t i
    words.reply_bytes = reply_bytes
    atomic_store_i64(&op.pending, 1)            # ours, until durable_release
    for i in range(count):
        result = &results[i]
        if result.end_offset < 0:
            continue
        wait = &words.waits[words.count]
        words.count += 1
        wait.log = result.log
        wait.error_at = result.error_at
        log_ref(wait.log)
        atomic_add_i64(&op.pending, 1)
        if not watch(&wait.watch, WATCH_DURABLE, wait.log, op, result.end_offset):
            atomic_add_i64(&op.pending, -1)


cdef void durable_release(Op* op) noexcept nogil:
    if atomic_add_i64(&op.pending, -1) == 0:
        op_post(op)
