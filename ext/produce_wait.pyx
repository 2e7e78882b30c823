"""Produce requests with acks=all that wait until their batches are durable.

The response is complete when the batches are appended. Only the error codes may change after that,
at the places that `error_at` names. See produce_wait.pxd and log_wait.pxd.
"""
from libc.stdint cimport int16_t, int32_t
from libc.stdlib cimport free

from kbroker.ext.atomics cimport atomic_load_i32
from kbroker.ext.broker cimport COUNTED_PRODUCE_LATE, broker_of, count_error
from kbroker.ext.connection cimport OP_WORDS
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.error_codes cimport (
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
    REQUEST_TIMED_OUT,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from kbroker.ext.log_state cimport LOG_IS_CLOSED, LOG_IS_DELETED, Log
from kbroker.ext.log_wait cimport (
    LogWait,
    LogWaits,
    log_wait_reached,
    log_waits_add,
    log_waits_alloc,
    log_waits_begin,
    log_waits_end,
    log_waits_linked,
)
from kbroker.ext.response cimport op_park, op_post, op_ready, reply_end
from kbroker.ext.wire cimport store_i16

ctypedef struct Response:           # over op.u
    LogWaits waits
    uint32_t bytes


cdef void set_error(Op* op, const LogWait* item) noexcept nogil:
    """Replace the partition's error code by the reason why its batch is not durable."""
    cdef const Log* log = item.watch.log
    cdef int16_t code = REQUEST_TIMED_OUT
    cdef int32_t ended = atomic_load_i32(&log.closed)
    if ended == LOG_IS_DELETED:
        code = UNKNOWN_TOPIC_OR_PARTITION
    elif ended == LOG_IS_CLOSED:
        code = NOT_LEADER_OR_FOLLOWER
    elif atomic_load_i32(&log.offline):
        code = KAFKA_STORAGE_ERROR
    store_i16(item.error_at, code)
    count_error(broker_of(op.connection.net), COUNTED_PRODUCE_LATE, code)


cdef void finish(Op* op) noexcept nogil:
    cdef Response* response = <Response*> op.u
    cdef uint32_t i
    for i in range(response.waits.count):
        if not log_wait_reached(&response.waits.items[i]):
            set_error(op, &response.waits.items[i])
    log_waits_end(op)
    reply_end(&op.reply, response.bytes)
    op_ready(op)


cdef Op* durable_park(Request* request, int32_t waiting) noexcept nogil:
    cdef LogWait* items
    cdef Op* op
    debug_assert(sizeof(Response) <= OP_WORDS * 8, "op.u is too small for a produce")
    if not log_waits_alloc(<uint32_t> waiting, &items):
        return NULL
    op = op_park(request)
    if op == NULL:
        free(items)
        return NULL
    log_waits_begin(op, items, finish)
    return op


cdef void durable_watch(Op* op, const PartitionResult* results, uint32_t count,
                        uint32_t reply_bytes) noexcept nogil:
    cdef uint32_t i
    (<Response*> op.u).bytes = reply_bytes
    for i in range(count):
        if results[i].end_offset >= 0:
            log_waits_add(op, results[i].log, results[i].end_offset, results[i].error_at)


cdef void durable_release(Op* op) noexcept nogil:
    if log_waits_linked(op):
        op_post(op)
