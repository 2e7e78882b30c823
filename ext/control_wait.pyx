"""Responses of the control plane that wait until several logs are durable.

Both bodies follow each other where the response begins, so that choosing one allocates nothing.
The control thread links the watches while its job has the Op. A log that moves before the job is
back sets `op.missed`, and the network thread calls `on_event` then. See control_wait.pxd and
log_wait.pxd.
"""
from libc.stdlib cimport free
from libc.string cimport memcpy, memmove

from kbroker.ext.connection cimport H_DONE, H_PENDING, OP_WORDS, Op
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.journal cimport journal_demand
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
from kbroker.ext.purgatory cimport log_wake
from kbroker.ext.queue cimport job_finish
from kbroker.ext.response cimport op_deadline, op_ready, reply_begin, reply_end

ctypedef struct Answer:             # over op.u
    LogWaits waits
    uint8_t* at                     # body, failed
    uint32_t body_bytes
    uint32_t failed_bytes


cdef void end(Op* op) noexcept nogil:
    """End the response with the body that says whether every log is at its offset."""
    cdef Answer* answer = <Answer*> op.u
    cdef uint32_t length = answer.body_bytes
    cdef uint32_t i
    for i in range(answer.waits.count):
        if not log_wait_reached(&answer.waits.items[i]):
            length = answer.failed_bytes
            memmove(answer.at, answer.at + answer.body_bytes, length)
            break
    log_waits_end(op)
    reply_end(&op.reply, length)


cdef void finish(Op* op) noexcept nogil:
    end(op)
    op_ready(op)


cdef int begin(Op* op, uint32_t count, const uint8_t* body, uint32_t body_bytes,
               const uint8_t* failed, uint32_t failed_bytes) noexcept nogil:
    """Allocate the watches, and copy both bodies to the response. 0, or -1: no memory."""
    cdef Answer* answer = <Answer*> op.u
    cdef LogWait* items
    debug_assert(sizeof(Answer) <= OP_WORDS * 8, "op.u is too small for a response that waits")
    if not log_waits_alloc(count, &items):
        return -1
    answer.at = reply_begin(&op.reply, body_bytes + failed_bytes)
    if answer.at == NULL:
        free(items)
        return -1
    memcpy(answer.at, body, body_bytes)
    memcpy(answer.at + body_bytes, failed, failed_bytes)
    answer.body_bytes = body_bytes
    answer.failed_bytes = failed_bytes
    log_waits_begin(op, items, finish)
    return 0


cdef int job_finish_when(Job* job, const Place* places, uint32_t count, const uint8_t* body,
                         uint32_t body_bytes, const uint8_t* failed,
                         uint32_t failed_bytes, int64_t timeout_ms) noexcept nogil:
    cdef Op* op = job.op
    cdef Log* log
    cdef uint32_t i
    if begin(op, count, body, body_bytes, failed, failed_bytes) != 0:
        return -1
    if timeout_ms > 0:
        op_deadline(op, timeout_ms)
    for i in range(count):
        log = places[i].log
        if not log_waits_add(op, log, places[i].offset, NULL):
            log_wake(log)           # without a journal the append itself moved the watermark
        elif log.journal != NULL:
            journal_demand(log.journal)
    if log_waits_linked(op):
        end(op)
        job_finish(job, H_DONE)
    else:
        job_finish(job, H_PENDING)
    return 0
