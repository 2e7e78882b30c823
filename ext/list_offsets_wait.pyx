"""Offsets that are not durable yet (see list_offsets_wait.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport uint64_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.connection cimport H_CLOSE, H_PENDING, Op, OP_WORDS
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.endian cimport load_be64, store_be32, store_be64
from kbroker.ext.error_codes cimport NONE, error_of_log
from kbroker.ext.journal cimport journal_demand
from kbroker.ext.list_offsets_wire cimport LEADER_EPOCHS, OFFSET_AT, TIMESTAMP_AT
from kbroker.ext.log_state cimport (
    LOG_OK, Watermarks, log_ref, log_unref, log_usable, log_watermarks,
)
from kbroker.ext.log_wait cimport (
    DURABLE_WAIT_MS, LogWait, LogWaits, log_waits_add, log_waits_alloc, log_waits_begin,
    log_waits_end, log_waits_linked,
)
from kbroker.ext.response cimport (
    op_deadline, op_park, op_post, op_ready, reply_abandon, reply_begin, reply_end,
)
from kbroker.ext.wire cimport store_i16

ctypedef struct Response:           # over op.u
    LogWaits waits
    uint32_t bytes
    int8_t isolation


cdef bint late_add(LateOffsets* late, Log* log, int64_t mark, uint8_t* error_at) noexcept nogil:
    cdef LateOffset* items = late.items
    if late.count == late.capacity:
        late.capacity = 2 * late.capacity + 4
        items = <LateOffset*>realloc(items, <size_t>late.capacity * sizeof(LateOffset))
        if items == NULL:
            late.capacity = late.count
            return False
        late.items = items
    log_ref(log)
    items[late.count].log = log
    items[late.count].mark = mark
    items[late.count].error_at = error_at
    late.count += 1
    return True


cdef void late_free(LateOffsets* late) noexcept nogil:
    cdef uint32_t i
    for i in range(late.count):
        log_unref(late.items[i].log)
    free(late.items)
    memset(late, 0, sizeof(LateOffsets))


cdef void put_nothing(uint8_t* error_at, int16_t error, int16_t version) noexcept nogil:
    store_i16(error_at, error)
    store_be64(error_at + TIMESTAMP_AT, <uint64_t>-1)
    store_be64(error_at + OFFSET_AT, <uint64_t>-1)
    if version >= LEADER_EPOCHS:
        store_be32(error_at + OFFSET_AT + 8, <uint32_t>-1)


cdef void settle(const LogWait* item, int8_t isolation, int16_t version) noexcept nogil:
    """Write what the reader may see of the log now."""
    cdef Watermarks at
    cdef int64_t offset = <int64_t>load_be64(item.error_at + OFFSET_AT)
    cdef int64_t end
    cdef int code = log_usable(item.watch.log)
    log_watermarks(item.watch.log, &at)
    end = at.lso if isolation == 1 else at.hw
    if code != LOG_OK:
        put_nothing(item.error_at, error_of_log(code), version)
    elif offset == item.watch.mark:
        store_be64(item.error_at + OFFSET_AT, <uint64_t>end)
    elif offset >= end:
        put_nothing(item.error_at, NONE, version)


cdef void finish(Op* op) noexcept nogil:
    cdef Response* response = <Response*> op.u
    cdef uint32_t i
    for i in range(response.waits.count):
        settle(&response.waits.items[i], response.isolation, op.reply.api_version)
    log_waits_end(op)
    reply_end(&op.reply, response.bytes)
    op_ready(op)


cdef Op* begin(Request* request, LateOffsets* late, const uint8_t* body,
               uint32_t written) noexcept nogil:
    """Move the response to the request's Op; NULL: no memory."""
    cdef LogWait* items
    cdef Op* op
    cdef uint8_t* moved = NULL
    cdef uint32_t i
    if not log_waits_alloc(late.count, &items):
        return NULL
    reply_abandon(&request.reply)       # its bytes stay where they are as long as nothing is put
    op = op_park(request)
    if op != NULL:
        moved = reply_begin(&op.reply, written)
    if moved == NULL:
        free(items)
        return NULL
    if moved != body:
        memcpy(moved, body, written)
    for i in range(late.count):
        late.items[i].error_at = moved + (late.items[i].error_at - body)
    log_waits_begin(op, items, finish)
    return op


cdef int late_answer(Request* request, LateOffsets* late, const uint8_t* body, uint32_t written,
                     int8_t isolation) noexcept nogil:
    cdef Op* op = begin(request, late, body, written)
    cdef LateOffset* item
    cdef uint32_t i
    debug_assert(sizeof(Response) <= OP_WORDS * 8, "op.u is too small for offsets that wait")
    if op == NULL:
        late_free(late)
        request.reason = b"out of memory"
        return H_CLOSE
    (<Response*> op.u).bytes = written
    (<Response*> op.u).isolation = isolation
    for i in range(late.count):
        item = &late.items[i]
        if log_waits_add(op, item.log, item.mark, item.error_at) and item.log.journal != NULL:
            journal_demand(item.log.journal)
    late_free(late)
    op_deadline(op, DURABLE_WAIT_MS)
    if log_waits_linked(op):
        op_post(op)
    return H_PENDING
