"""Retention, trimming and truncation of a log (see log_retention.pxd)."""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from kbroker.ext.atomics cimport atomic_load_i64, atomic_store_i32, atomic_store_i64
from kbroker.ext.epochs cimport epochs_truncate_from_end, epochs_truncate_from_start
from kbroker.ext.index cimport index_truncate
from kbroker.ext.log_append cimport log_create_segment, log_roll_locked
from kbroker.ext.log_files cimport files_snapshots
from kbroker.ext.log_rebuild cimport rebuild_end, rebuild_producers
from kbroker.ext.log_state cimport (
    LOG_CORRUPT,
    LOG_IS_DELETED,
    LOG_MOVING,
    LOG_OFFSET_OUT_OF_RANGE,
    LOG_OK,
    Position,
    log_active,
    log_disk_error,
    log_end_position,
    log_floor,
    log_forget_positions,
    log_locate,
    log_lock_soon,
    log_move_hw,
    log_push_segment,
    log_retire,
    log_update_lso,
    log_usable,
)
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.producers cimport producers_expire
from kbroker.ext.segment cimport (
    Segment,
    segment_cut,
    segment_idle,
    segment_largest,
    segment_unlink,
    segment_unref,
)
from kbroker.ext.snapshots cimport Snapshots, snapshots_free
from kbroker.ext.txn_index cimport txn_index_truncate


# ---- roll

cdef int log_roll(Log* log, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if code == LOG_OK and not log.frozen and log_active(log).base_offset != log.leo:
        code = log_roll_locked(log, now_ms)
    pthread_mutex_unlock(&log.lock)
    return code


# ---- log start

cdef void move_start(Log* log, int64_t offset) noexcept nogil:
    if offset <= log.log_start:
        return
    atomic_store_i64(&log.log_start, offset)
    epochs_truncate_from_start(&log.epochs, offset)
    log_update_lso(log)


cdef int log_set_start(Log* log, int64_t offset) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if code == LOG_OK:
        if log.frozen:
            code = LOG_MOVING
        elif offset > log.hw:
            code = LOG_OFFSET_OUT_OF_RANGE
        else:
            move_start(log, offset)
    pthread_mutex_unlock(&log.lock)
    return code


# ---- retention

cdef enum Rule:
    BELOW_LOG_START
    OVER_SIZE
    OVER_AGE

ctypedef struct Retention:
    Rule rule
    int64_t now_ms
    int64_t excess              # bytes beyond retention.bytes


cdef int64_t bytes_of(const Log* log) noexcept nogil:
    cdef int64_t bytes = 0
    cdef int32_t i
    for i in range(log.count):
        bytes += log.segments[i].size
    return bytes


cdef bint breaches(Log* log, int32_t i, Retention* r) noexcept nogil:
    cdef Segment* s = log.segments[i]
    if r.rule == BELOW_LOG_START:
        return i + 1 < log.count and log.segments[i + 1].base_offset <= log.log_start
    if r.rule == OVER_AGE:
        return r.now_ms - segment_largest(s) > log.cfg.retention_ms
    if r.excess - s.size < 0:
        return False
    r.excess -= s.size
    return True


cdef int retire_old(Log* log, Retention* r) noexcept nogil:
    """Retire the oldest segments as long as the rule asks for it; never one at or beyond hw. When
    that is all of them, a new one comes first: a log is never without."""
    cdef int32_t n = 0
    cdef int64_t end
    cdef int code = LOG_OK
    while n < log.count:
        end = log.segments[n + 1].base_offset if n + 1 < log.count else log.leo
        if log.hw < end or (n + 1 == log.count and log.segments[n].size == 0):
            break
        if not breaches(log, n, r):
            break
        n += 1
    if n == 0:
        return 0
    if n == log.count:
        code = log_roll_locked(log, r.now_ms)
        if code != LOG_OK:
            return code
    move_start(log, log.segments[n].base_offset)
    code = log_retire(log, 0, n, r.now_ms)
    return n if code == LOG_OK else code


cdef int delete_locked(Log* log, int64_t now_ms) noexcept nogil:
    cdef Retention r
    cdef int retired
    cdef int n
    r.now_ms = now_ms
    r.rule = BELOW_LOG_START
    retired = retire_old(log, &r)
    if retired < 0 or not log.cfg.cleanup_delete:
        return retired
    r.excess = bytes_of(log) - log.cfg.retention_bytes
    if log.cfg.retention_bytes >= 0 and r.excess >= 0:
        r.rule = OVER_SIZE
        n = retire_old(log, &r)
        if n < 0:
            return n
        retired += n
    if log.cfg.retention_ms >= 0:
        r.rule = OVER_AGE
        n = retire_old(log, &r)
        if n < 0:
            return n
        retired += n
    return retired


cdef int log_delete_old(Log* log, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int result = log_usable(log)
    if result == LOG_OK and not log.frozen:
        result = delete_locked(log, now_ms)
    pthread_mutex_unlock(&log.lock)
    return result


cdef int log_unlink_deleted(Log* log, int64_t now_ms, bint all) noexcept nogil:
    cdef int32_t i
    cdef int32_t kept = 0
    cdef int gone = 0
    cdef Segment* s
    pthread_mutex_lock(&log.lock)
    if not log.closed or all:
        for i in range(log.retired_count):
            s = log.retired[i]
            if all or now_ms - s.retired_ms >= log.cfg.file_delete_delay_ms:
                segment_unlink(s)
                segment_unref(s)
                gone += 1
            else:
                log.retired[kept] = s
                kept += 1
        log.retired_count = kept
    pthread_mutex_unlock(&log.lock)
    return gone


# ---- truncation

cdef int cut_active(Log* log, int64_t offset) noexcept nogil:
    """Cut the segment that holds the offset, which becomes the active one."""
    cdef Position at
    cdef Segment* s = log_active(log)
    cdef bint torn = False
    cdef int error
    cdef int code = log_locate(log, offset, &at)
    if code != LOG_OK:
        return code
    s.sealed = 0
    if at.segment_base == s.base_offset and at.byte < s.size:
        error = segment_cut(s, at.byte) or index_truncate(&s.offsets, offset) \
            or index_truncate(&s.times, offset) or txn_index_truncate(s, offset)
        if error:
            return log_disk_error(log, error)
    if s.size > 0:
        code = rebuild_end(log, s, &torn)
    else:
        s.largest_timestamp = -1
        s.first_timestamp = -1
        s.bytes_since_index = 0
    return LOG_CORRUPT if torn else code


cdef int start_anew(Log* log, int64_t offset, int64_t now_ms) noexcept nogil:
    """All of the log lies beyond the offset: it begins there, empty."""
    cdef int32_t count = log.count
    cdef int code
    cdef Segment* s = log_create_segment(log, offset, now_ms, &code)
    if s == NULL:
        return code
    code = log_retire(log, 0, count, now_ms)
    if code == LOG_OK:
        code = log_push_segment(log, s)
    if code != LOG_OK:
        segment_unref(s)
    return code


cdef int reload_producers(Log* log, int64_t now_ms) noexcept nogil:
    cdef Snapshots snapshots
    cdef int error = files_snapshots(log.dir, &snapshots)
    cdef int code
    if error:
        return log_disk_error(log, error)
    code = rebuild_producers(log, &snapshots, log.leo, log.hw, now_ms, True)
    snapshots_free(&snapshots)
    return code


cdef int truncate_locked(Log* log, int64_t offset, int64_t now_ms) noexcept nogil:
    cdef Position end
    cdef int32_t i
    cdef int code
    if offset >= log.leo:
        epochs_truncate_from_end(&log.epochs, log.leo)
        return LOG_OK
    i = log_floor(log, offset)
    if i < 0:
        code = start_anew(log, offset, now_ms)
    else:
        code = log_retire(log, i + 1, log.count - i - 1, now_ms)
        if code == LOG_OK:
            code = cut_active(log, offset)
    if code != LOG_OK:
        return code
    log_forget_positions(log)
    log.pending_count = 0
    log_active(log).next_offset = offset
    atomic_store_i64(&log.leo, offset)
    atomic_store_i64(&log.log_start, min(log.log_start, offset))
    log.recovery_point = min(log.recovery_point, offset)
    epochs_truncate_from_end(&log.epochs, offset)
    code = reload_producers(log, now_ms)
    if log.hw >= offset:
        log_end_position(log, &end)
        log_move_hw(log, &end)
    else:
        log_update_lso(log)
    return code


cdef int log_truncate_to(Log* log, int64_t offset, int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&log.flush_lock)
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if code == LOG_OK:
        code = truncate_locked(log, offset, now_ms)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flush_lock)
    return code


# ---- upkeep

cdef int log_idle(Log* log, int64_t now_ms, int64_t idle_ms) noexcept nogil:
    cdef int32_t i
    cdef Segment* s
    cdef int let_go = 0
    pthread_mutex_lock(&log.lock)
    for i in range(log.count if log_usable(log) == LOG_OK else 0):
        s = log.segments[i]
        if s.used:
            s.used = 0
            s.last_used_ms = now_ms
        elif now_ms - s.last_used_ms >= idle_ms and not s.dirty:
            let_go += segment_idle(s)
    if log.pending_count == 0 and now_ms - log.last_append_ms >= idle_ms:
        free(log.pending)
        log.pending = NULL
        log.pending_capacity = 0
        log.pending_head = 0
        free(log.recent)
        log.recent = NULL
    pthread_mutex_unlock(&log.lock)
    return let_go


cdef int log_expire_producers(Log* log, int64_t now_ms) noexcept nogil:
    cdef int gone = 0
    pthread_mutex_lock(&log.lock)
    if log.producers != NULL:
        gone = producers_expire(log.producers, now_ms, log.cfg.producer_id_expiration_ms)
    pthread_mutex_unlock(&log.lock)
    return gone


cdef void log_configure(Log* log, const LogConfig* cfg) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    log.cfg = cfg[0]
    pthread_mutex_unlock(&log.lock)


cdef int64_t log_size(Log* log) noexcept nogil:
    if not log_lock_soon(log):
        return atomic_load_i64(&log.seen_bytes)
    cdef int64_t bytes = bytes_of(log)
    pthread_mutex_unlock(&log.lock)
    return bytes


cdef int log_mark_deleted(Log* log) noexcept nogil:
    cdef int32_t i
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    for i in range(log.count):
        segment_idle(log.segments[i])
    atomic_store_i32(&log.closed, LOG_IS_DELETED)
    pthread_mutex_unlock(&log.lock)
    return code
