"""Indexes, leader epochs and producers, built again from the batches (see log_rebuild.pxd)."""
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport NO_PRODUCER_ID, BatchInfo
from kbroker.ext.epochs cimport epochs_assign, epochs_latest
from kbroker.ext.index cimport (
    index_clear,
    index_keep_valid,
    index_load,
    index_sane,
    index_truncate,
    offset_index_lookup,
)
from kbroker.ext.log_state cimport (
    LOG_NO_MEMORY,
    LOG_OK,
    LOG_STORAGE_ERROR,
    NO_SNAPSHOT,
    log_disk_error,
    log_floor,
    log_index_limits,
)
from kbroker.ext.partition_transactions cimport EndedTxn, txns_stable_below
from kbroker.ext.producers cimport (
    ORIGIN_REPLAY,
    ProducerBatch,
    Terms,
    producers_apply,
    producers_check,
    producers_clear,
    producers_new,
)
from kbroker.ext.segment cimport (
    FIND_BATCH,
    TIMES_UNKNOWN,
    Found,
    Hint,
    IndexLimits,
    segment_begin,
    segment_cut,
    segment_find,
    segment_hint,
    segment_note,
    segment_open,
    segment_reserve_entry,
)
from kbroker.ext.snapshots cimport SNAPSHOT_BROKEN, snapshot_read, snapshot_unlink
from kbroker.ext.txn_index cimport (
    TxnBuffer,
    txn_index_add,
    txn_index_flush,
    txn_index_truncate,
)
from kbroker.ext.walk cimport (
    WALK_BATCH,
    WALK_END,
    WALK_ERROR,
    WALK_TORN,
    Walk,
    walk_bytes,
    walk_crc,
    walk_free,
    walk_init,
    walk_next,
)

cdef enum:
    CRC_READ_BYTES = 1 << 20


# ---- folding a batch in

cdef int fold_producer(Log* log, Segment* s, Walk* w, int64_t stable,
                       TxnBuffer* aborted) noexcept nogil:
    """Fold a batch of the log into the producer state. Markers below `stable` are stable. An
    aborted transaction goes into `aborted`, unless that is NULL."""
    cdef ProducerBatch ignored
    cdef EndedTxn ended
    cdef Terms terms
    cdef const uint8_t* bytes = NULL
    cdef int error
    if w.info.producer_id <= NO_PRODUCER_ID:
        return LOG_OK
    if w.info.control:
        bytes = walk_bytes(w, w.info.length)
        if bytes == NULL:
            return LOG_STORAGE_ERROR
    if log.producers == NULL:
        log.producers = producers_new()
    terms.origin = ORIGIN_REPLAY
    if log.producers == NULL \
            or producers_check(log.producers, &terms, bytes, &w.info, &ignored) != 0:
        return LOG_NO_MEMORY
    producers_apply(log.producers, bytes, &w.info, w.info.base_offset, &ended)
    txns_stable_below(&log.producers.txns, stable)
    if aborted != NULL and ended.first_offset >= 0 and ended.aborted:
        error = txn_index_add(s, aborted, &ended)
        if error:
            return log_disk_error(log, error)
    return LOG_OK


cdef int fold_epoch(Log* log, const BatchInfo* info) noexcept nogil:
    if info.leader_epoch > epochs_latest(&log.epochs):
        if epochs_assign(&log.epochs, info.leader_epoch, info.base_offset) != 0:
            return LOG_NO_MEMORY
    return LOG_OK


# ---- one segment, with CRC

cdef int clear_indexes(Log* log, Segment* s) noexcept nogil:
    cdef int error = index_clear(&s.offsets) or index_clear(&s.times)
    error = error or txn_index_truncate(s, s.base_offset)
    s.largest_timestamp = -1
    s.first_timestamp = -1
    s.bytes_since_index = 0
    return log_disk_error(log, error) if error else LOG_OK


cdef int64_t trusted_start(Log* log, Segment* s, int64_t recovery_point,
                           int64_t* first_offset) noexcept nogil:
    """Position and first offset of the last indexed batch that lies wholly below the recovery
    point, its index entry being the last one kept. 0 when there is none: then nothing of the
    indexes is to be kept."""
    cdef Hint hint
    cdef Found found
    cdef int32_t n
    first_offset[0] = s.base_offset
    if recovery_point <= s.base_offset or segment_open(s, False) != 0:
        return 0
    if index_keep_valid(&s.offsets, s.size) != 0 or index_keep_valid(&s.times, s.size) != 0:
        return 0
    n = offset_index_lookup(&s.offsets, recovery_point - 1, &hint.entry_offset, &hint.position)
    if n < 0:
        return 0
    hint.end = s.size
    if segment_find(s, &hint, hint.entry_offset, &found) != FIND_BATCH:
        return 0
    if index_truncate(&s.offsets, hint.entry_offset + 1) != 0 \
            or index_truncate(&s.times, hint.entry_offset + 1) != 0 \
            or txn_index_truncate(s, found.base_offset) != 0 or index_load(&s.times) != 0:
        return 0
    s.largest_timestamp = s.times.last_timestamp
    s.offset_of_largest_timestamp = s.times.last_offset
    s.bytes_since_index = 0
    s.first_timestamp = TIMES_UNKNOWN
    first_offset[0] = found.base_offset
    return hint.position


cdef bint in_order(const Segment* s, const BatchInfo* info, int64_t next_offset) noexcept nogil:
    """Offsets ascend, without a gap unless compaction made one, and fit the segment."""
    return info.base_offset >= next_offset and info.last_offset_delta >= 0 \
        and info.base_offset + info.last_offset_delta - s.base_offset <= INT32_MAX


cdef int walk_segment(Log* log, Segment* s, Walk* w, int64_t next_offset,
                      const IndexLimits* limits, TxnBuffer* aborted) noexcept nogil:
    """Fold whole batches in until the end or the first that is not: w.at is where it stands.

    WALK_END or WALK_TORN; LOG_CORRUPT and below are errors.
    """
    cdef int code
    cdef int sound
    cdef int error
    while True:
        code = walk_next(w)
        if code == WALK_ERROR:
            return log_disk_error(log, w.error)
        if code != WALK_BATCH:
            return code
        sound = in_order(s, &w.info, next_offset) and walk_crc(w)
        if sound == WALK_ERROR:
            return log_disk_error(log, w.error)
        if not sound:
            return WALK_TORN
        error = segment_reserve_entry(s, limits)
        if error:
            return log_disk_error(log, error)
        next_offset = w.info.base_offset + w.info.last_offset_delta + 1
        segment_note(s, w.at, &w.info, next_offset - 1, limits)
        code = fold_epoch(log, &w.info)
        if code == LOG_OK:
            code = fold_producer(log, s, w, INT64_MAX, aborted)
        if code != LOG_OK:
            return code


cdef int rebuild_start(Log* log, Segment* s, int64_t recovery_point,
                       Start* out) noexcept nogil:
    out.position = trusted_start(log, s, recovery_point, &out.offset)
    return LOG_OK if out.position > 0 else clear_indexes(log, s)


cdef int rebuild_segment(Log* log, Segment* s, const Start* start, Rebuilt* report,
                         bint* torn) noexcept nogil:
    cdef Walk w
    cdef IndexLimits limits
    cdef TxnBuffer aborted
    cdef int code
    cdef int error = segment_open(s, False)
    torn[0] = False
    if error:
        return log_disk_error(log, error)
    log_index_limits(log, &limits)
    if walk_init(&w, s.fd, start.position, s.size, CRC_READ_BYTES) != 0:
        return LOG_NO_MEMORY
    s.next_offset = start.offset
    aborted.count = 0
    code = walk_segment(log, s, &w, start.offset, &limits, &aborted)
    walk_free(&w)
    if code < 0:
        return code
    error = txn_index_flush(s, &aborted)
    if error:
        return log_disk_error(log, error)
    report.bytes_walked += w.at - start.position
    report.indexes_rebuilt += start.position == 0
    report.bytes_cut += s.size - w.at
    torn[0] = w.at < s.size
    # Even with nothing to cut: blocks prepared beyond the end are given back.
    error = segment_cut(s, w.at)
    return log_disk_error(log, error) if error else LOG_OK


# ---- the end, after a clean shutdown

cdef int walk_to_end(Log* log, Segment* s, int64_t position, bint* torn) noexcept nogil:
    cdef Walk w
    cdef int code
    s.next_offset = s.base_offset
    if walk_init(&w, s.fd, position, s.size, 0) != 0:
        return LOG_NO_MEMORY
    while True:
        code = walk_next(&w)
        if code != WALK_BATCH:
            break
        if not in_order(s, &w.info, s.next_offset):
            code = WALK_TORN
            break
        s.next_offset = w.info.base_offset + w.info.last_offset_delta + 1
        if w.info.max_timestamp > s.largest_timestamp:
            s.largest_timestamp = w.info.max_timestamp
            s.offset_of_largest_timestamp = s.next_offset - 1
    walk_free(&w)
    if code == WALK_ERROR:
        return log_disk_error(log, w.error)
    torn[0] = code != WALK_END or s.next_offset == s.base_offset
    return LOG_OK


cdef int rebuild_end(Log* log, Segment* s, bint* torn) noexcept nogil:
    cdef Hint hint
    cdef int error = segment_open(s, False)
    torn[0] = False
    if error:
        return log_disk_error(log, error)
    if not index_sane(&s.offsets, s.size) or not index_sane(&s.times, s.size):
        torn[0] = True
        return LOG_OK
    segment_hint(s, INT64_MAX, &hint)
    s.largest_timestamp = s.times.last_timestamp
    s.offset_of_largest_timestamp = s.times.last_offset
    s.bytes_since_index = s.size - hint.position
    return walk_to_end(log, s, hint.position, torn)


cdef int find_end(Log* log, Segment* s) noexcept nogil:
    cdef bint torn
    cdef int code = rebuild_end(log, s, &torn)
    return walk_to_end(log, s, 0, &torn) if code == LOG_OK and torn else code


# ---- producers and epochs, from headers

cdef int fold_headers(Log* log, Segment* s, int64_t start, int64_t end, int64_t stable,
                      bint producers, bint epochs) noexcept nogil:
    """Batches of the segment from offset `start` on that begin below offset `end`."""
    cdef Walk w
    cdef Hint hint
    cdef int step = WALK_END
    cdef int code = LOG_OK
    cdef int error = segment_open(s, False)
    if error:
        return log_disk_error(log, error)
    segment_hint(s, start, &hint)
    if walk_init(&w, s.fd, segment_begin(s, &hint), s.size, 0) != 0:
        return LOG_NO_MEMORY
    while code == LOG_OK:
        step = walk_next(&w)
        if step != WALK_BATCH or w.info.base_offset >= end:
            break
        if w.info.base_offset < start:
            continue
        if producers:
            code = fold_producer(log, s, &w, stable, NULL)
        if epochs and code == LOG_OK:
            code = fold_epoch(log, &w.info)
    walk_free(&w)
    if code == LOG_OK and step == WALK_ERROR:
        return log_disk_error(log, w.error)
    return code


cdef int fold_log(Log* log, int64_t start, int64_t end, int64_t stable, bint producers,
                  bint epochs) noexcept nogil:
    cdef int32_t i = max(0, log_floor(log, start))
    cdef int code = LOG_OK
    while i < log.count and code == LOG_OK and log.segments[i].base_offset < end:
        if log.segments[i].size > 0:
            code = fold_headers(log, log.segments[i], start, end, stable, producers, epochs)
        i += 1
    return code


cdef int load_newest(Log* log, Snapshots* snapshots, int64_t end, int64_t now_ms) noexcept nogil:
    """Take the newest good snapshot at or below `end`; what cannot be right is removed."""
    cdef int error
    log.snapshot_offset = NO_SNAPSHOT
    while snapshots.count > 0:
        log.snapshot_offset = snapshots.offsets[snapshots.count - 1]
        if log.snapshot_offset <= end:
            error = snapshot_read(log.dir, log.snapshot_offset, log.producers, now_ms,
                                  log.cfg.producer_id_expiration_ms)
            if error == 0:
                return LOG_OK
            if error != SNAPSHOT_BROKEN:
                return log_disk_error(log, error)
        snapshot_unlink(log.dir, log.snapshot_offset)
        snapshots.count -= 1
        log.snapshot_offset = NO_SNAPSHOT
    return LOG_OK


cdef int rebuild_producers(Log* log, Snapshots* snapshots, int64_t end, int64_t stable,
                           int64_t now_ms, bint always) noexcept nogil:
    cdef bint had_any = snapshots.count > 0
    cdef int64_t start
    cdef int code
    if log.producers == NULL:
        log.producers = producers_new()
        if log.producers == NULL:
            return LOG_NO_MEMORY
    producers_clear(log.producers)
    code = load_newest(log, snapshots, end, now_ms)
    if code != LOG_OK:
        return code
    if log.snapshot_offset == NO_SNAPSHOT and not had_any and not always:
        return LOG_OK
    start = max(log.log_start, log.snapshot_offset)
    return fold_log(log, start, end, stable, True, False)


cdef int rebuild_epochs(Log* log) noexcept nogil:
    return fold_log(log, 0, INT64_MAX, INT64_MAX, False, True)
