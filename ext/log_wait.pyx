"""Delayed operations that wait until several logs are durable (see log_wait.pxd)."""
from libc.stdlib cimport free, malloc

from kbroker.ext.atomics cimport atomic_store_i64
from kbroker.ext.log_state cimport log_unref
from kbroker.ext.purgatory cimport unwatch


cdef bint log_waits_alloc(uint32_t count, LogWait** items) noexcept nogil:
    items[0] = NULL
    if count > 1:
        items[0] = <LogWait*> malloc(count * sizeof(LogWait))
    return count <= 1 or items[0] != NULL


cdef void on_event(Op* op) noexcept nogil:
    if atomic_load_i64(&op.pending) == 0:
        op.on_timeout(op)


cdef void log_waits_begin(Op* op, LogWait* items,
                          void (*finish)(Op*) noexcept nogil) noexcept nogil:
    cdef LogWaits* waits = log_waits_of(op)
    waits.items = items if items != NULL else &waits.single
    waits.count = 0
    op.on_event = on_event
    op.on_timeout = finish
    op.on_cancel = log_waits_end
    atomic_store_i64(&op.pending, 1)


cdef void log_waits_end(Op* op) noexcept nogil:
    cdef LogWaits* waits = log_waits_of(op)
    cdef uint32_t i
    for i in range(waits.count):
        unwatch(&waits.items[i].watch)
        log_unref(waits.items[i].watch.log)
    if waits.items != &waits.single:
        free(waits.items)
