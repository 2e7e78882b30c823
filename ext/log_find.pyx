"""Find offsets by time (see log_find.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker.ext.batch cimport (
    BATCH_BOMB,
    BATCH_NO_CODEC,
    BATCH_OK,
    RECORDS_OFFSET,
    BatchInfo,
    Record,
    RecordCursor,
    next_record,
    records_init,
)
from kbroker.ext.batch_build cimport (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_FREELY_BYTES_MAX,
    batch_decompress,
    large_batch_begin,
    large_batch_end,
)
from kbroker.ext.compression cimport Buffer, buffer_free
from kbroker.ext.index cimport time_index_lookup
from kbroker.ext.log_state cimport (
    LOG_CORRUPT,
    LOG_HELD,
    LOG_NO_MEMORY,
    LOG_OK,
    LOG_STORAGE_ERROR,
    log_disk_error,
    log_lock_soon,
    log_open_segment,
    log_usable,
)
from kbroker.ext.posix cimport pthread_mutex_unlock
from kbroker.ext.segment cimport (
    Hint,
    Segment,
    segment_begin,
    segment_hint,
    segment_largest,
    segment_load_times,
    segment_ref,
    segment_unref,
)
from kbroker.ext.walk cimport (
    WALK_BATCH,
    WALK_END,
    WALK_TORN,
    Walk,
    walk_bytes,
    walk_free,
    walk_init,
    walk_next,
)

ctypedef struct Search:
    int64_t timestamp           # wanted: at least, or exactly
    bint exactly
    int64_t from_offset
    int64_t behind              # base offset of the segment that was looked into last


# ---- in one batch

cdef int search_records(const BatchInfo* info, const uint8_t* p, const uint8_t* end,
                        const Search* wanted, TimestampOffset* out) noexcept nogil:
    """1 when a record was found."""
    cdef RecordCursor cursor
    cdef Record record
    cdef int code
    records_init(&cursor, info, p, end)
    while True:
        code = next_record(&cursor, &record)
        if code != 1:
            return 0 if code == 0 else LOG_CORRUPT
        if record.offset < wanted.from_offset or record.timestamp < wanted.timestamp:
            continue
        if wanted.exactly and record.timestamp != wanted.timestamp:
            continue
        out.offset = record.offset
        out.timestamp = record.timestamp
        out.leader_epoch = info.leader_epoch
        return 1


cdef int search_compressed(const BatchInfo* info, const uint8_t* p, size_t limit,
                           const Search* wanted, TimestampOffset* out) noexcept nogil:
    """1 when a record was found, BATCH_BOMB beyond the limit."""
    cdef Buffer plain
    cdef int code
    memset(&plain, 0, sizeof(Buffer))
    code = batch_decompress(p, info, limit, &plain)
    if code == BATCH_OK:
        code = search_records(info, plain.p, plain.p + plain.n, wanted, out)
    elif code != BATCH_BOMB and code != BATCH_NO_CODEC:
        code = LOG_CORRUPT
    buffer_free(&plain)
    return code


cdef int search_batch(Walk* w, const Search* wanted, TimestampOffset* out) noexcept nogil:
    """1 when a record was found. A codec that this machine lacks, and more than anybody unpacks,
    leave the batch's own fields."""
    cdef const uint8_t* p = walk_bytes(w, w.info.length)
    cdef int code
    if p == NULL:
        return LOG_STORAGE_ERROR
    if w.info.compression == 0:
        return search_records(&w.info, p + RECORDS_OFFSET, p + w.info.length, wanted, out)
    code = search_compressed(&w.info, p, DECOMPRESSED_FREELY_BYTES_MAX, wanted, out)
    if code == BATCH_BOMB:
        large_batch_begin()
        code = search_compressed(&w.info, p, DECOMPRESSED_BYTES_MAX, wanted, out)
        large_batch_end()
    if code != BATCH_BOMB and code != BATCH_NO_CODEC:
        return code
    out.offset = max(wanted.from_offset, w.info.base_offset)
    out.timestamp = w.info.max_timestamp
    out.leader_epoch = w.info.leader_epoch
    return 1


cdef int search_segment(Segment* s, int64_t position, int64_t end, const Search* wanted,
                        TimestampOffset* out) noexcept nogil:
    cdef Walk w
    cdef int code = LOG_OK
    cdef int step
    if walk_init(&w, s.fd, position, end, 0) != 0:
        return LOG_NO_MEMORY
    while code == LOG_OK:
        step = walk_next(&w)
        if step != WALK_BATCH:
            if step != WALK_END:
                code = LOG_CORRUPT if step == WALK_TORN else LOG_STORAGE_ERROR
            break
        if w.info.max_timestamp < wanted.timestamp:
            continue
        if wanted.exactly and w.info.max_timestamp != wanted.timestamp:
            continue
        code = search_batch(&w, wanted, out)
    walk_free(&w)
    return LOG_OK if code == 1 else code


cdef int search_held(Segment* s, const Hint* hint, const Search* wanted,
                     TimestampOffset* out) noexcept nogil:
    """Search and let go."""
    cdef int code = LOG_OK
    if s != NULL:
        code = search_segment(s, segment_begin(s, hint), hint.end, wanted, out)
        segment_unref(s)
    return code


# ---- which segment

cdef int hold(Log* log, Segment* s, Segment** out) noexcept nogil:
    cdef int error = log_open_segment(log, s, False)
    if error:
        return log_disk_error(log, error)
    segment_ref(s)
    out[0] = s
    return LOG_OK


cdef bint is_deleted(const Log* log, int32_t i) noexcept nogil:
    """The log starts behind it, and retention has not been there yet."""
    return i + 1 < log.count and log.segments[i + 1].base_offset <= log.log_start


cdef int start_by_time(Log* log, Search* wanted, Segment** out, Hint* hint) noexcept nogil:
    """The first segment that reaches the timestamp, held, and where in it to begin."""
    cdef Segment* s
    cdef int64_t offset
    cdef int32_t i
    cdef int code = log_usable(log)
    out[0] = NULL
    wanted.from_offset = log.log_start
    if code != LOG_OK:
        return code
    for i in range(log.count):
        s = log.segments[i]
        if s.base_offset <= wanted.behind or is_deleted(log, i):
            continue
        if s.size == 0 or segment_largest(s) < wanted.timestamp:
            continue
        wanted.behind = s.base_offset
        time_index_lookup(&s.times, wanted.timestamp, &offset)
        segment_hint(s, max(offset, wanted.from_offset), hint)
        return hold(log, s, out)
    return LOG_OK


cdef int start_at_max(Log* log, Search* wanted, Segment** out, Hint* hint) noexcept nogil:
    cdef Segment* best = NULL
    cdef int32_t i
    cdef int code = log_usable(log)
    out[0] = NULL
    if code != LOG_OK:
        return code
    for i in range(log.count):
        segment_load_times(log.segments[i])
        if best == NULL or log.segments[i].largest_timestamp > best.largest_timestamp:
            best = log.segments[i]
    if best == NULL or best.largest_timestamp < 0:
        return LOG_OK
    wanted.timestamp = best.largest_timestamp
    segment_hint(best, best.offset_of_largest_timestamp, hint)
    return hold(log, best, out)


cdef int find(Log* log, Search* wanted, TimestampOffset* out) noexcept nogil:
    """In one segment."""
    cdef Segment* s
    cdef Hint hint
    cdef int code
    out.offset = -1
    out.timestamp = -1
    out.leader_epoch = -1
    if not log_lock_soon(log):
        return LOG_HELD
    if wanted.exactly:
        code = start_at_max(log, wanted, &s, &hint)
    else:
        code = start_by_time(log, wanted, &s, &hint)
    pthread_mutex_unlock(&log.lock)
    return search_held(s, &hint, wanted, out) if code == LOG_OK else code


cdef int log_offset_for_timestamp(Log* log, int64_t timestamp,
                                  TimestampOffset* out) noexcept nogil:
    cdef Search wanted
    cdef int code
    wanted.timestamp = timestamp
    wanted.exactly = False
    wanted.behind = -1
    code = find(log, &wanted, out)
    if code == LOG_OK and out.offset < 0 and 0 <= wanted.behind < wanted.from_offset:
        code = find(log, &wanted, out)  # what reaches the timestamp there was deleted
    return code


cdef int log_offset_of_max_timestamp(Log* log, TimestampOffset* out) noexcept nogil:
    cdef Search wanted
    wanted.exactly = True
    wanted.from_offset = -1
    return find(log, &wanted, out)
