"""Answers of the control plane that wait for durability; see control_wait.pxd and purgatory.pxd.

Both bodies stand behind each other where the answer is begun, so that choosing one allocates
nothing. The control thread links the watch while the Op is lent to its job: a log that moves before
the job is home leaves `op.missed` behind, and the network thread asks `on_moved` then.
"""
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memmove

from kbroker.ext.atomics cimport atomic_add_i64, atomic_load_i64, atomic_store_i64
from kbroker.ext.connection cimport H_DONE, H_PENDING, OP_WORDS, Op
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.journal cimport journal_demand
from kbroker.ext.log_state cimport log_ref, log_unref
from kbroker.ext.purgatory cimport WATCH_DURABLE, Watch, log_wake, unwatch, watch
from kbroker.ext.queue cimport job_finish
from kbroker.ext.response cimport op_deadline, op_ready, reply_begin, reply_end

ctypedef struct Answer:             # over op.u
    Watch single                    # where one log is waited for
    Watch* watches                  # their logs are held while this answer waits
    uint8_t* at                     # body, failed
    uint32_t count
    uint32_t body_bytes
    uint32_t failed_bytes


cdef void choose(Op* op) noexcept nogil:
    """Every log is there, or one will never be: end the answer with the body that says so."""
    cdef Answer* answer = <Answer*> op.u
    cdef uint32_t length = answer.body_bytes
    cdef uint32_t i
    for i in range(answer.count):
        if atomic_load_i64(&answer.watches[i].log.hw) < answer.watches[i].mark:
            length = answer.failed_bytes
            memmove(answer.at, answer.at + answer.body_bytes, length)
            break
    reply_end(&op.reply, length)


cdef void on_cancel(Op* op) noexcept nogil:
    cdef Answer* answer = <Answer*> op.u
    cdef uint32_t i
    for i in range(answer.count):
        unwatch(&answer.watches[i])
        log_unref(answer.watches[i].log)
    if answer.watches != &answer.single:
        free(answer.watches)


cdef void finish(Op* op) noexcept nogil:
    choose(op)
    on_cancel(op)
    op_ready(op)


cdef void on_moved(Op* op) noexcept nogil:
    if atomic_load_i64(&op.pending) == 0:
        finish(op)


cdef int begin(Op* op, uint32_t count, const uint8_t* body, uint32_t body_bytes,
               const uint8_t* failed, uint32_t failed_bytes) noexcept nogil:
    """Room for the watches, and both bodies where the answer begins. 0, or -1: no memory."""
    cdef Answer* answer = <Answer*> op.u
    debug_assert(sizeof(Answer) <= OP_WORDS * 8, "no room for an answer that waits")
    answer.watches = &answer.single
    if count > 1:
        answer.watches = <Watch*> malloc(count * sizeof(Watch))
        if answer.watches == NULL:
            return -1
    answer.at = reply_begin(&op.reply, body_bytes + failed_bytes)
    if answer.at == NULL:
        if count > 1:
            free(answer.watches)
        return -1
    memcpy(answer.at, body, body_bytes)
    memcpy(answer.at + body_bytes, failed, failed_bytes)
    answer.count = count
    answer.body_bytes = body_bytes
    answer.failed_bytes = failed_bytes
    return 0


cdef int job_finish_when(Job* job, const Place* places, uint32_t count, const uint8_t* body,
                         uint32_t body_bytes, const uint8_t* failed,
                         uint32_t failed_bytes, int64_t timeout_ms) noexcept nogil:
    cdef Op* op = job.op
    cdef Answer* answer = <Answer*> op.u
    cdef Log* log
    cdef uint32_t i
    if begin(op, count, body, body_bytes, failed, failed_bytes) != 0:
        return -1
    op.on_event = on_moved
    op.on_cancel = on_cancel
    if timeout_ms > 0:
        op.on_timeout = finish
        op_deadline(op, timeout_ms)
    atomic_store_i64(&op.pending, <int64_t> count + 1)      # one more until all are linked
    for i in range(count):
        log = places[i].log
        log_ref(log)
        if watch(&answer.watches[i], WATCH_DURABLE, log, op, places[i].offset):
            if log.journal != NULL:
                journal_demand(log.journal)
        else:
            log_wake(log)           # without a journal the append itself moved the watermark
            atomic_add_i64(&op.pending, -1)
    if atomic_add_i64(&op.pending, -1) > 0:
        job_finish(job, H_PENDING)
        return 0
    choose(op)
    on_cancel(op)
    job_finish(job, H_DONE)
    return 0
