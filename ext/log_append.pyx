"""Append to the log of a partition (see log_append.pxd).

The order within the lock is what keeps an append whole. First what can be refused or can fail
without a trace: producer state, room in the journal, a new segment, room in the indexes. Then the
one write. Then what cannot fail: size, indexes, producers, leader epoch, log end offset, journal.
"""
from libc.errno cimport errno
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc, realloc

from kbroker.ext.atomics cimport atomic_add_i32, atomic_load_i32, atomic_store_i64
from kbroker.ext.batch cimport (
    batch_set_base_offset,
    batch_set_leader_epoch,
    batch_set_timestamps,
)
from kbroker.ext.epochs cimport epochs_assign, epochs_latest
from kbroker.ext.index cimport index_clear, index_full, index_load, index_touch
from kbroker.ext.journal cimport (
    JOURNAL_OK,
    JOURNAL_STALL,
    JournalOwner,
    Reservation,
    journal_cancel,
    journal_commit,
    journal_owner_init,
    journal_reserve,
)
from kbroker.ext.log_flush cimport log_flush
from kbroker.ext.log_producers cimport (
    log_apply_producer,
    log_check_producer,
    log_prepare_abort,
)
from kbroker.ext.log_state cimport (
    DIRECTORIES_MAX,
    LOG_DUPLICATE,
    LOG_MOVING,
    LOG_NO_MEMORY,
    LOG_OFFSET_OUT_OF_RANGE,
    LOG_OK,
    LOG_STALL,
    LOG_TOO_LARGE,
    Position,
    log_active,
    log_disk_error,
    log_end_position,
    log_index_limits,
    log_locate,
    log_move_hw,
    log_offline,
    log_open_segment,
    log_push_segment,
    log_retire,
    log_update_lso,
    log_usable,
)
from kbroker.ext.posix cimport (
    EDQUOT,
    EIO,
    ENOSPC,
    ftruncate,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kbroker.ext.producers cimport (
    NOT_GUARDED,
    ORIGIN_CLIENT,
    ORIGIN_REPLAY,
    ProducerBatch,
    Terms,
)
from kbroker.ext.segment cimport (
    TIMES_UNKNOWN,
    IndexLimits,
    segment_append,
    segment_create_files,
    segment_discard,
    segment_load_first,
    segment_load_times,
    segment_new,
    segment_note,
    segment_reserve_entry,
    segment_seal,
    segment_unref,
)
from kbroker.ext.snapshots cimport snapshot_write
from kbroker.ext.txn_index cimport txn_index_truncate

cdef enum:
    PENDING_MIN = 16
    PENDING_MAX = 4096

cdef int32_t[DIRECTORIES_MAX] lacked_room   # atomic, by directory: see appends_without_room


# ---- roll

cdef uint64_t next_random(Log* log) noexcept nogil:
    log.random ^= log.random << 13
    log.random ^= log.random >> 7
    log.random ^= log.random << 17
    return log.random


cdef int64_t log_roll_jitter(Log* log) noexcept nogil:
    cdef int64_t most = min(log.cfg.segment_jitter_ms, log.cfg.segment_ms)
    return <int64_t> (next_random(log) >> 1) % most if most > 0 else 0


cdef int append_error(Log* log, int error) noexcept nogil:
    if error == ENOSPC or error == EDQUOT:
        atomic_add_i32(&lacked_room[log.directory], 1)
    return log_disk_error(log, error)


def appends_without_room(int place=0):
    """How many appends to a log directory have found its file system, or a quota, full so far."""
    if not 0 <= place < DIRECTORIES_MAX:
        raise ValueError(f"no log directory {place}")
    return atomic_load_i32(&lacked_room[place])


cdef int make_empty(Segment* s) noexcept nogil:
    """Files of this name may be left of a roll that failed: nothing of them is in the log. Indexes
    are there from the start, for Kafka rebuilds one that is missing; empty, they cost an inode."""
    if ftruncate(s.fd, 0) != 0:
        return errno
    return index_clear(&s.offsets) or index_clear(&s.times) \
        or index_touch(&s.offsets) or index_touch(&s.times) \
        or txn_index_truncate(s, s.base_offset)


cdef Segment* log_create_segment(Log* log, int64_t base_offset, int64_t now_ms,
                                 int* error) noexcept nogil:
    """The file exists afterwards, empty."""
    cdef Segment* s = segment_new(log.dir, base_offset)
    if s == NULL:
        error[0] = LOG_NO_MEMORY
        return NULL
    error[0] = log_open_segment(log, s, True) or make_empty(s)
    if error[0]:
        error[0] = append_error(log, error[0])
        segment_discard(s)
        return NULL
    s.created_ms = now_ms
    s.jitter_ms = log_roll_jitter(log)
    log.dir_dirty = 1
    return s


cdef int create_files(Log* log, Segment* s, int64_t now_ms) noexcept nogil:
    """The first append to a log creates the files of its first segment."""
    log.dir_dirty = 1
    s.created_ms = now_ms
    return log_open_segment(log, s, True) or segment_create_files(s)


cdef int log_roll_locked(Log* log, int64_t now_ms) noexcept nogil:
    cdef Segment* old = log_active(log)
    cdef Segment* s
    cdef IndexLimits limits
    cdef int64_t step = old.step
    cdef int error
    log_index_limits(log, &limits)
    s = log_create_segment(log, log.leo, now_ms, &error)
    if s == NULL:
        return error
    error = segment_seal(old, &limits)
    if error == 0:
        error = snapshot_write(log.dir, log.leo, log.producers, False)
    if error:
        # Appends may go on in the old one: then this would stand in the middle of it.
        segment_discard(s)
        return append_error(log, error)
    if log_push_segment(log, s) != LOG_OK:
        segment_discard(s)
        return LOG_NO_MEMORY
    log.snapshot_offset = log.leo
    log.snapshot_dirty = 1
    log.bytes_since_snapshot = 0
    # A segment that was filled says how fast the partition is; one that grew old does not.
    s.step = step if 2 * old.size > log.cfg.segment_bytes else 0
    if log.hw == log.leo:
        log_end_position(log, &log.hw_at)
        log_update_lso(log)
    return LOG_OK


cdef int64_t age_of(Segment* s, int64_t now_ms) noexcept nogil:
    """By the clock. When an earlier start made the file nobody wrote down, but its first batch
    tells, unless it is of the future: to count from this start would begin anew with each."""
    if s.created_ms == TIMES_UNKNOWN:
        segment_load_first(s)
        s.created_ms = min(s.first_timestamp, now_ms) if s.first_timestamp >= 0 else now_ms
    return now_ms - s.created_ms


cdef bint is_aged(const Log* log, Segment* s, int64_t now_ms) noexcept nogil:
    """What adapts is short beside a jitter that is meant for segment.ms: half of it is the most
    that is taken off."""
    cdef int64_t most = log.cfg.segment_age_ms
    return most >= 0 and age_of(s, now_ms) > most - s.jitter_ms % (most // 2 + 1)


cdef bint is_old(const Log* log, Segment* s, const BatchInfo* info, int64_t now_ms) noexcept nogil:
    """segment.ms counts from the first batch's timestamp, or from the file when it has none. What
    adapts to retention counts from the file (see age_of): records of long ago that are written now
    one after the other, days apart, must not get a segment each."""
    cdef int64_t waited
    if s.size == 0:
        return False
    if is_aged(log, s, now_ms):
        return True
    segment_load_first(s)
    if s.first_timestamp >= 0:
        waited = info.max_timestamp - s.first_timestamp
    else:
        waited = age_of(s, now_ms)
    return waited > log.cfg.segment_ms - s.jitter_ms


cdef bint must_roll(const Log* log, Segment* s, const BatchInfo* info,
                    int64_t now_ms) noexcept nogil:
    if s.base_offset == log.leo:
        return False
    if s.size + info.length > log.cfg.segment_bytes or is_old(log, s, info, now_ms):
        return True
    if s.offsets.entries < 0:
        index_load(&s.offsets)
    if s.times.entries < 0:
        index_load(&s.times)
    if index_full(&s.offsets, log.cfg.segment_index_bytes) \
            or index_full(&s.times, log.cfg.segment_index_bytes):
        return True
    return log.leo + info.last_offset_delta - s.base_offset > INT32_MAX


cdef int prepare_segment(Log* log, const BatchInfo* info, const IndexLimits* limits,
                         int64_t now_ms) noexcept nogil:
    """The active segment is open and will take this batch and its index entries."""
    cdef int error
    cdef int code
    if must_roll(log, log_active(log), info, now_ms):
        code = log_roll_locked(log, now_ms)
        if code != LOG_OK:
            return code
    cdef Segment* s = log_active(log)
    error = log_open_segment(log, s, False) if s.has_files else create_files(log, s, now_ms)
    error = error or segment_load_times(s) or segment_reserve_entry(s, limits)
    return append_error(log, error) if error else LOG_OK


# ---- append

cdef int write_batch(Log* log, const uint8_t* batch, const BatchInfo* info, int64_t base_offset,
                     int64_t now_ms) noexcept nogil:
    """Roll if need be, write, and fold the batch into all that the log knows."""
    cdef IndexLimits limits
    cdef Segment* s
    cdef int64_t position
    cdef int64_t last_offset = base_offset + info.last_offset_delta
    cdef int error
    log_index_limits(log, &limits)
    cdef int code = prepare_segment(log, info, &limits, now_ms)
    if code == LOG_OK:
        code = log_prepare_abort(log, batch, info)
    if code != LOG_OK:
        return code
    s = log_active(log)
    position = s.size
    error = segment_append(s, batch, info.length, log.cfg.segment_bytes)
    if error:
        return append_error(log, error)
    segment_note(s, position, info, last_offset, &limits)
    s.used = 1
    log.last_append_ms = now_ms
    log.bytes_since_snapshot += info.length
    atomic_store_i64(&s.size, position + info.length)
    log_apply_producer(log, batch, info, base_offset)
    if info.leader_epoch > epochs_latest(&log.epochs):
        epochs_assign(&log.epochs, info.leader_epoch, base_offset)
    atomic_store_i64(&log.leo, last_offset + 1)
    return LOG_OK


cdef void push_pending(Log* log) noexcept nogil:
    """Note where this append ends. With no room left the newest note is replaced: hw_at is then
    searched for when a flush ends between the two."""
    cdef uint32_t mask
    cdef uint32_t i
    cdef uint32_t larger
    cdef void* moved
    if log.pending_count == log.pending_capacity and log.pending_capacity < PENDING_MAX:
        larger = max(<uint32_t> PENDING_MIN, 2 * log.pending_capacity)
        moved = realloc(log.pending, larger * sizeof(Position))
        if moved != NULL:
            log.pending = <Position*> moved
            # Unroll the ring: what wrapped around goes behind the old end.
            for i in range(log.pending_head):
                log.pending[log.pending_capacity + i] = log.pending[i]
            log.pending_capacity = larger
    if log.pending_capacity == 0:
        return
    mask = log.pending_capacity - 1
    if log.pending_count < log.pending_capacity:
        log.pending_count += 1
    log_end_position(log, &log.pending[(log.pending_head + log.pending_count - 1) & mask])


cdef void after_append(Log* log, AppendResult* out, Reservation* place, const uint8_t* batch,
                       const BatchInfo* info) noexcept nogil:
    cdef Position end
    if log.journal == NULL:
        log_end_position(log, &end)
        log_move_hw(log, &end)
        out.hw_advanced = 1
    else:
        push_pending(log)
        journal_commit(log.journal, place, batch, info.length, out.end_offset)
    out.leo = log.leo


cdef void tell_duplicate(const ProducerBatch* before, AppendResult* out) noexcept nogil:
    out.last_offset = before.last_offset
    out.base_offset = before.last_offset - before.offset_delta
    out.end_offset = before.last_offset + 1
    out.log_append_time = before.timestamp


cdef int reserve(Log* log, uint32_t length, Reservation* place) noexcept nogil:
    """Room in the journal for a batch."""
    cdef int code
    if log.journal_owner == NULL:
        log.journal_owner = <JournalOwner*> malloc(sizeof(JournalOwner))
        if log.journal_owner == NULL:
            return LOG_NO_MEMORY
        journal_owner_init(log.journal_owner, log, log.topic_id, log.partition)
    code = journal_reserve(log.journal, log.journal_owner, length, place)
    if code == JOURNAL_OK:
        return LOG_OK
    return LOG_STALL if code == JOURNAL_STALL else log_offline(log, EIO)


cdef int append_locked(Log* log, const Terms* terms, uint8_t* batch, const BatchInfo* info,
                       int64_t now_ms, AppendResult* out) noexcept nogil:
    cdef Reservation place
    cdef ProducerBatch before
    cdef BatchInfo stored = info[0]
    cdef int code = log_usable(log) or (LOG_MOVING if log.frozen else LOG_OK)
    if code == LOG_OK and info.length > log.cfg.segment_bytes:
        code = LOG_TOO_LARGE
    if code == LOG_OK:
        code = log_check_producer(log, terms, batch, info, &before)
        if code == LOG_DUPLICATE:
            tell_duplicate(&before, out)
    if code != LOG_OK:
        return code
    if log.journal != NULL:
        code = reserve(log, info.length, &place)
        if code != LOG_OK:
            return code
    if log.cfg.timestamp_type == 1:
        batch_set_timestamps(batch, &stored, True, now_ms)
        out.log_append_time = now_ms
    elif info.patch_max_timestamp:
        batch_set_timestamps(batch, &stored, False, info.max_timestamp)
    stored.leader_epoch = atomic_load_i32(&log.leader_epoch)
    out.base_offset = log.leo
    out.last_offset = log.leo + info.last_offset_delta
    out.end_offset = out.last_offset + 1
    batch_set_base_offset(batch, out.base_offset)
    batch_set_leader_epoch(batch, stored.leader_epoch)
    code = write_batch(log, batch, &stored, out.base_offset, now_ms)
    if code != LOG_OK:
        if log.journal != NULL:
            journal_cancel(log.journal, &place)
        return code
    after_append(log, out, &place, batch, &stored)
    return LOG_OK


cdef int log_append_on(Log* log, const Terms* terms, uint8_t* batch, const BatchInfo* info,
                       int64_t now_ms, AppendResult* out) noexcept nogil:
    cdef int64_t ignored
    cdef bint flush
    cdef int flushed
    cdef int code
    out.base_offset = -1
    out.last_offset = -1
    out.end_offset = -1
    out.log_append_time = -1
    out.hw_advanced = 0
    pthread_mutex_lock(&log.lock)
    out.leo = log.leo
    code = append_locked(log, terms, batch, info, now_ms, out)
    if code == LOG_OK:
        log.counts.records_in += info.count
        log.counts.bytes_in += info.length
    out.log_start = log.log_start
    flush = log.journal == NULL and log.leo - log.recovery_point >= log.cfg.flush_messages
    pthread_mutex_unlock(&log.lock)
    if flush and (code == LOG_OK or code == LOG_DUPLICATE):
        # flush.messages: before the answer, as Kafka does; readers may have seen it by then. A
        # duplicate may be there because the first flush was put off.
        flushed = log_flush(log, now_ms, &ignored)
        code = code if flushed == LOG_OK else flushed
    return code


cdef int log_append(Log* log, uint8_t* batch, const BatchInfo* info, int64_t now_ms,
                    AppendResult* out) noexcept nogil:
    cdef Terms terms
    terms.origin = ORIGIN_CLIENT
    terms.guard = 0
    terms.transaction_version = 0
    return log_append_on(log, &terms, batch, info, now_ms, out)


cdef int begin_at(Log* log, int64_t offset, int64_t now_ms) noexcept nogil:
    """An empty log, whose start lies within the batch to come: it begins with the batch."""
    cdef int code
    cdef Segment* s = log_create_segment(log, offset, now_ms, &code)
    if s == NULL:
        return code
    code = log_retire(log, 0, 1, now_ms)
    if code == LOG_OK:
        code = log_push_segment(log, s)
    if code != LOG_OK:
        segment_unref(s)
        return code
    atomic_store_i64(&log.leo, offset)
    return LOG_OK


cdef int as_is_locked(Log* log, const uint8_t* batch, const BatchInfo* info,
                      int64_t now_ms) noexcept nogil:
    cdef ProducerBatch ignored
    cdef Terms terms
    cdef Position end
    cdef int code = log_usable(log)
    terms.origin = ORIGIN_REPLAY
    terms.guard = NOT_GUARDED
    terms.transaction_version = 0
    if code != LOG_OK:
        return code
    if info.base_offset + info.last_offset_delta < log.leo:
        return LOG_OK
    if info.base_offset < log.leo and log.count == 1 and log_active(log).size == 0:
        code = begin_at(log, info.base_offset, now_ms)
    elif info.base_offset != log.leo:
        return LOG_OFFSET_OUT_OF_RANGE
    if code == LOG_OK:
        code = log_check_producer(log, &terms, batch, info, &ignored)
    if code == LOG_OK:
        code = write_batch(log, batch, info, info.base_offset, now_ms)
    if code == LOG_OK:
        log_end_position(log, &end)
        log_move_hw(log, &end)
    return code


cdef int log_append_as_is(Log* log, const uint8_t* batch, const BatchInfo* info,
                          int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int code = as_is_locked(log, batch, info, now_ms)
    pthread_mutex_unlock(&log.lock)
    return code


# ---- high watermark

cdef bint take_pending(Log* log, int64_t end_offset, Position* out) noexcept nogil:
    """Drop the notes up to end_offset; true when the last of them is there exactly."""
    cdef uint32_t mask = log.pending_capacity - 1
    out.offset = -1
    while log.pending_count > 0 and log.pending[log.pending_head & mask].offset <= end_offset:
        out[0] = log.pending[log.pending_head & mask]
        log.pending_head = (log.pending_head + 1) & mask
        log.pending_count -= 1
    return out.offset == end_offset


cdef int log_advance_hw(Log* log, int64_t end_offset) noexcept nogil:
    cdef Position at
    cdef int moved = 0
    pthread_mutex_lock(&log.lock)
    if end_offset > log.hw and end_offset <= log.leo and log_usable(log) == LOG_OK:
        if take_pending(log, end_offset, &at) or log_locate(log, end_offset, &at) == LOG_OK:
            log_move_hw(log, &at)
            moved = 1
    pthread_mutex_unlock(&log.lock)
    return moved
