"""Delayed operations that wait until several logs are durable.

Floor: above `purgatory` and `response`, below produce and control. It links one watch for each
log, counts them down and removes them. The caller keeps the response:

    log_waits_alloc(count, &items), then op_park; or an Op that a job has
    log_waits_begin(op, items, finish)
    log_waits_add(op, log, offset, ...) for each log
    op_deadline(op, ...)                # optional
    log_waits_linked(op)                # True: no watch is left, nothing calls `finish`

`finish` is called once on the network thread: when every log has reached its offset, is offline or
closed, or at the deadline. It checks each item with log_wait_reached, calls log_waits_end and sends
the response. If the connection ends first, log_waits_end is called without it.

`op.pending` counts the watches that are linked, and one more until log_waits_linked: no other
thread ends the wait before every watch is linked.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t

from kbroker.ext.atomics cimport atomic_add_i64, atomic_load_i64
from kbroker.ext.connection cimport Op
from kbroker.ext.log_state cimport Log, log_ref
from kbroker.ext.purgatory cimport WATCH_DURABLE, Watch, watch

cdef enum:
    # What reads the end of a log waits no longer than this for what was acknowledged before it was
    # durable; a disk that hangs is not to hold up its readers.
    DURABLE_WAIT_MS = 5000

ctypedef struct LogWait:
    Watch watch                     # watch.log is referenced until log_waits_end
    uint8_t* error_at               # of the caller: the partition's error code in its response

ctypedef struct LogWaits:           # at the beginning of op.u; the caller's own words follow
    LogWait single                  # a wait for one log allocates nothing
    LogWait* items
    uint32_t count

# Memory for `count` logs; NULL where op.u has it. False: no memory.
cdef bint log_waits_alloc(uint32_t count, LogWait** items) noexcept nogil
# Takes over `items`, and sets the callbacks of the Op.
cdef void log_waits_begin(Op* op, LogWait* items, void (*finish)(Op*) noexcept nogil) noexcept nogil
# Removes the watches and drops the references.
cdef void log_waits_end(Op* op) noexcept nogil

cdef inline LogWaits* log_waits_of(Op* op) noexcept nogil:
    return <LogWaits*> op.u

cdef inline bint log_waits_add(Op* op, Log* log, int64_t offset, uint8_t* error_at) noexcept nogil:
    """Wait for the log's high watermark at `offset`. False: it is there, or the log is gone."""
    cdef LogWaits* waits = log_waits_of(op)
    cdef LogWait* item = &waits.items[waits.count]
    waits.count += 1
    item.error_at = error_at
    log_ref(log)
    atomic_add_i64(&op.pending, 1)
    if watch(&item.watch, WATCH_DURABLE, log, op, offset):
        return True
    atomic_add_i64(&op.pending, -1)
    return False

cdef inline bint log_waits_linked(Op* op) noexcept nogil:
    """Every watch is linked. True: none is left."""
    return atomic_add_i64(&op.pending, -1) == 0

cdef inline bint log_wait_reached(const LogWait* item) noexcept nogil:
    return atomic_load_i64(&item.watch.log.hw) >= item.watch.mark
