"""Watch lists of logs; see the contract in purgatory.pxd.

Most logs are never watched: the list is made with the first watch, and an append that nobody
waits for costs one load. The store of a watermark and the load of `count` are ordered by a full
fence on both sides, so either the appender sees the watch or the watcher sees the watermark.
"""
from libc.stdint cimport INT64_MAX
from libc.stdlib cimport calloc, free

from kbroker.ext.atomics cimport (
    atomic_add_i64,
    atomic_exchange_i64,
    atomic_fence,
    atomic_load_i32,
    atomic_load_i64,
    atomic_load_ptr,
    atomic_store_i64,
    atomic_store_ptr,
)
from kbroker.ext.journal cimport journal_demand
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.response cimport op_hold, op_post, op_release


cdef WatchList* list_of(Log* log) noexcept nogil:
    """With the watch lock held: the log's list, made when it is not there. NULL: no memory."""
    cdef WatchList* found = <WatchList*>log.watchers
    if found == NULL:
        found = <WatchList*>calloc(1, sizeof(WatchList))
        if found != NULL:
            found.durable.next = found.durable.previous = &found.durable
            found.readers.next = found.readers.previous = &found.readers
            atomic_store_ptr(&log.watchers, found)
    return found


cdef inline bint satisfied(Watch* watch) noexcept nogil:
    cdef Log* log = watch.log
    if atomic_load_i32(&log.offline) or atomic_load_i32(&log.closed):
        return True
    if watch.kind == WATCH_DURABLE:
        return atomic_load_i64(&log.hw) >= watch.mark
    if watch.kind == WATCH_STABLE:
        return atomic_load_i64(&log.lso) > watch.mark
    return atomic_load_i64(&log.hw) > watch.mark


cdef void link(WatchList* watchers, Watch* watch) noexcept nogil:
    cdef Watch* before
    if watch.kind == WATCH_DURABLE:
        before = watchers.durable.previous      # marks come nearly in order: search from the end
        while before != &watchers.durable and before.mark > watch.mark:
            before = before.previous
    else:
        before = watchers.readers.previous
        atomic_add_i64(&watchers.readers_count, 1)
    watch.previous = before
    watch.next = before.next
    before.next.previous = watch
    before.next = watch
    watch.linked = 1
    atomic_add_i64(&watchers.count, 1)


cdef void unlink(WatchList* watchers, Watch* watch) noexcept nogil:
    watch.previous.next = watch.next
    watch.next.previous = watch.previous
    watch.linked = 0
    atomic_add_i64(&watchers.count, -1)
    if watch.kind != WATCH_DURABLE:
        atomic_add_i64(&watchers.readers_count, -1)


cdef bint watch(Watch* watch, int32_t kind, Log* log, Op* op, int64_t mark) noexcept nogil:
    cdef WatchList* watchers
    cdef bint linked = False
    watch.kind = kind
    watch.log = log
    watch.op = op
    watch.mark = mark
    watch.linked = 0
    pthread_mutex_lock(&log.watch_lock)
    watchers = list_of(log)
    if watchers != NULL:
        link(watchers, watch)
        atomic_fence()
        if satisfied(watch):
            unlink(watchers, watch)
        else:
            linked = True
            op_hold(op)
    pthread_mutex_unlock(&log.watch_lock)
    return linked


cdef void unwatch(Watch* watch) noexcept nogil:
    cdef Log* log = watch.log
    cdef bint was_linked = False
    if log == NULL:
        return
    pthread_mutex_lock(&log.watch_lock)
    if watch.linked:
        unlink(<WatchList*>log.watchers, watch)
        was_linked = True
    pthread_mutex_unlock(&log.watch_lock)
    if was_linked:
        op_release(watch.op)


cdef void wake_durable(WatchList* watchers) noexcept nogil:
    """Those whose mark is reached; they stand in its order."""
    cdef Watch* first = watchers.durable.next
    cdef Op* op
    while first != &watchers.durable and satisfied(first):
        op = first.op
        unlink(watchers, first)
        if atomic_add_i64(&op.pending, -1) == 0:
            op_post(op)
        op_release(op)
        first = watchers.durable.next


cdef void wake_readers(WatchList* watchers) noexcept nogil:
    cdef Watch* reader = watchers.readers.next
    cdef Watch* following
    cdef Op* op
    while reader != &watchers.readers:
        following = reader.next
        if satisfied(reader):
            op = reader.op
            unlink(watchers, reader)
            op_post(op)
            op_release(op)
        reader = following


cdef inline bint is_at(Log* log, int64_t offset) noexcept nogil:
    return atomic_load_i64(&log.hw) >= offset or atomic_load_i32(&log.offline) \
        or atomic_load_i32(&log.closed)


cdef void ring_mark(Log* log) noexcept nogil:
    if is_at(log, atomic_load_i64(&log.mark)) \
            and atomic_exchange_i64(&log.mark, INT64_MAX) != INT64_MAX:
        log.on_mark(log.mark_argument)


cdef bint log_mark(Log* log, int64_t offset) noexcept nogil:
    atomic_store_i64(&log.mark, offset)
    atomic_fence()
    if is_at(log, offset):
        atomic_store_i64(&log.mark, INT64_MAX)
        return True
    if log.journal != NULL:
        journal_demand(log.journal)
    return False


cdef void log_wake(Log* log) noexcept nogil:
    cdef WatchList* watchers
    atomic_fence()
    if atomic_load_i64(&log.mark) != INT64_MAX:
        ring_mark(log)
    watchers = <WatchList*>atomic_load_ptr(&log.watchers)
    if watchers == NULL or atomic_load_i64(&watchers.count) == 0:
        return
    pthread_mutex_lock(&log.watch_lock)
    wake_durable(watchers)
    wake_readers(watchers)
    pthread_mutex_unlock(&log.watch_lock)


cdef bint log_has_readers(Log* log) noexcept nogil:
    """Does a fetch wait for this log? Then data not yet durable is wanted now."""
    cdef WatchList* watchers = <WatchList*>atomic_load_ptr(&log.watchers)
    return watchers != NULL and atomic_load_i64(&watchers.readers_count) != 0


cdef void watchers_free(Log* log) noexcept nogil:
    """When the log is freed: nothing is linked any more, since a linked watch holds the log."""
    free(log.watchers)
    log.watchers = NULL
