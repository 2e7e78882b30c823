"""Answers of the control plane that wait for durability; see control_wait.pxd and purgatory.pxd.

Both bodies stand behind each other where the answer is begun, so that choosing one allocates
nothing. The control thread links the watch while the Op is lent to its job: a log that moves before
the job is home leaves `op.missed` behind, and the network thread asks `on_moved` then.
"""
from libc.string cimport memcpy, memmove

from kbroker.ext.atomics cimport atomic_load_i64, atomic_store_i64
from kbroker.ext.connection cimport H_DONE, H_PENDING, OP_WORDS, Op
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.journal cimport journal_demand
from kbroker.ext.log_state cimport log_ref, log_unref
from kbroker.ext.purgatory cimport WATCH_DURABLE, Watch, log_wake, unwatch, watch
from kbroker.ext.queue cimport job_finish
from kbroker.ext.response cimport op_deadline, op_ready, reply_begin, reply_end

ctypedef struct Answer:             # over op.u
    Watch watch                     # its log is held while this answer waits
    uint8_t* at                     # body, failed
    uint32_t body_bytes
    uint32_t failed_bytes


cdef void choose(Op* op) noexcept nogil:
    """The log is there, or it will never be: end the answer with the body that says so."""
    cdef Answer* answer = <Answer*> op.u
    cdef uint32_t length = answer.body_bytes
    if atomic_load_i64(&answer.watch.log.hw) < answer.watch.mark:
        length = answer.failed_bytes
        memmove(answer.at, answer.at + answer.body_bytes, length)
    reply_end(&op.reply, length)


cdef void on_cancel(Op* op) noexcept nogil:
    cdef Answer* answer = <Answer*> op.u
    unwatch(&answer.watch)
    log_unref(answer.watch.log)


cdef void finish(Op* op) noexcept nogil:
    choose(op)
    on_cancel(op)
    op_ready(op)


cdef void on_moved(Op* op) noexcept nogil:
    if atomic_load_i64(&op.pending) == 0:
        finish(op)


cdef int job_finish_when(Job* job, Log* log, int64_t offset, const uint8_t* body,
                         uint32_t body_bytes, const uint8_t* failed,
                         uint32_t failed_bytes, int64_t timeout_ms) noexcept nogil:
    cdef Op* op = job.op
    cdef Answer* answer = <Answer*> op.u
    debug_assert(sizeof(Answer) <= OP_WORDS * 8, "no room for an answer that waits")
    answer.at = reply_begin(&op.reply, body_bytes + failed_bytes)
    if answer.at == NULL:
        return -1
    memcpy(answer.at, body, body_bytes)
    memcpy(answer.at + body_bytes, failed, failed_bytes)
    answer.body_bytes = body_bytes
    answer.failed_bytes = failed_bytes
    op.on_event = on_moved
    op.on_cancel = on_cancel
    if timeout_ms > 0:
        op.on_timeout = finish
        op_deadline(op, timeout_ms)
    log_ref(log)
    atomic_store_i64(&op.pending, 1)
    if watch(&answer.watch, WATCH_DURABLE, log, op, offset):
        if log.journal != NULL:
            journal_demand(log.journal)
        job_finish(job, H_PENDING)
        return 0
    log_wake(log)                   # without a journal the append itself moved the watermark
    choose(op)
    on_cancel(op)
    job_finish(job, H_DONE)
    return 0
