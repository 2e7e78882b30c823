"""One cleaning of a log (see cleaner_pass.pxd)."""
from libc.stdint cimport INT32_MAX, INT64_MAX
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_i32
from kbroker.ext.cleaner_filter cimport (
    FILTER_NO_ROOM,
    filter_batch,
    filter_free,
    filter_map,
)
from kbroker.ext.cleaner_map cimport map_close, map_open
from kbroker.ext.cleaner_output cimport (
    output_discard,
    output_finish,
    output_free,
    output_open,
)
from kbroker.ext.cleaner_swap cimport swap_segments
from kbroker.ext.cleaner_txns cimport last_records_free, last_records_load, txns_free, txns_load
from kbroker.ext.cleaner_txns cimport txns_rewind
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.held cimport Held, held_release, held_take
from kbroker.ext.log_flush cimport log_flush
from kbroker.ext.log_state cimport (
    LOG_CORRUPT,
    LOG_HELD,
    LOG_NO_MEMORY,
    LOG_OK,
    LogConfig,
    log_active,
    log_disk_error,
    log_floor,
    log_lock_soon,
    log_open_segment,
    log_usable,
)
from kbroker.ext.posix cimport (
    nanosleep,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    stat,
    stat_t,
    timespec_t,
)
from kbroker.ext.segment cimport (
    SEGMENT_PATH_BYTES,
    Hint,
    Segment,
    segment_begin,
    segment_hint,
    segment_largest,
    segment_load_first,
    segment_path,
)
from kbroker.ext.walk cimport (
    WALK_BATCH,
    WALK_END,
    WALK_ERROR,
    Walk,
    walk_bytes,
    walk_free,
    walk_init,
    walk_next,
)

cdef enum:
    NAP_NS = 50 * 1000 * 1000           # how soon a throttled cleaning sees that it is to stop
    BURST_NS = 300 * 1000 * 1000        # what an idle throttle grants at once

# What a pass does with a whole batch. *done: the pass is over.
ctypedef int (*Visit)(Pass* c, const uint8_t* p, Walk* w, bint* done) noexcept nogil


# ---- throttle

cdef void throttle_init(Throttle* t) noexcept nogil:
    pthread_mutex_init(&t.lock, NULL)
    t.bytes_per_second = 0
    t.free_ns = 0
    t.rates = 0


cdef void throttle_set_rate(Throttle* t, double bytes_per_second) noexcept nogil:
    pthread_mutex_lock(&t.lock)
    if t.bytes_per_second != bytes_per_second:
        t.bytes_per_second = bytes_per_second
        t.free_ns = 0
        atomic_store_i32(&t.rates, t.rates + 1)
    pthread_mutex_unlock(&t.lock)


cdef void take(Throttle* t, int64_t bytes, const int32_t* stop) noexcept nogil:
    """Bytes were read or written: wait until the rate allows for them. A rate of 0 is no limit."""
    cdef timespec_t nap
    cdef int64_t now_ns = monotonic_ns()
    cdef int64_t until_ns
    cdef int32_t rate
    cdef double cost_ns
    pthread_mutex_lock(&t.lock)
    rate = t.rates
    cost_ns = bytes * 1e9 / t.bytes_per_second if t.bytes_per_second > 0 else 0
    t.free_ns = max(t.free_ns, now_ns - BURST_NS) + <int64_t> min(cost_ns, 1e15)
    until_ns = t.free_ns
    pthread_mutex_unlock(&t.lock)
    while until_ns > now_ns and atomic_load_i32(&t.rates) == rate and not atomic_load_i32(stop):
        nap.tv_sec = 0
        nap.tv_nsec = min(<int64_t> NAP_NS, until_ns - now_ns)
        nanosleep(&nap, NULL)
        now_ns = monotonic_ns()


# ---- survey; the lock of the log is held

cdef int64_t too_young(Log* log, int32_t first, int64_t now_ms) noexcept nogil:
    """Base offset of the first segment from `first` on that min.compaction.lag.ms keeps."""
    cdef int32_t i
    if log.cfg.min_compaction_lag_ms > 0:
        for i in range(first, log.count - 1):
            if segment_largest(log.segments[i]) > now_ms - log.cfg.min_compaction_lag_ms:
                return log.segments[i].base_offset
    return INT64_MAX


cdef int64_t overdue(Log* log, int32_t first, int64_t now_ms) noexcept nogil:
    """By how much the oldest dirty segment is beyond max.compaction.lag.ms."""
    cdef int64_t limit = now_ms - log.cfg.max_compaction_lag_ms
    cdef int64_t oldest = INT64_MAX
    cdef Segment* s
    cdef int32_t i
    if limit <= 0:
        return 0
    for i in range(first, log.count - 1):
        s = log.segments[i]
        if s.size > 0 and segment_load_first(s) == 0 and s.first_timestamp > 0:
            oldest = min(oldest, s.first_timestamp)
    return max(<int64_t> 0, limit - oldest) if oldest < INT64_MAX else 0


cdef void survey_locked(Log* log, int64_t checkpoint, int64_t now_ms, Survey* out) noexcept nogil:
    cdef int64_t end = min(log.lso, log_active(log).base_offset)
    cdef int32_t first
    cdef int32_t last
    cdef int32_t i
    memset(out, 0, sizeof(Survey))
    out.first_dirty = checkpoint if checkpoint >= 0 else log.log_start
    if out.first_dirty < log.log_start or out.first_dirty > log.leo:
        out.reset = 1 if out.first_dirty < log.log_start else 2
        out.first_dirty = log.log_start
    first = max(0, log_floor(log, out.first_dirty))
    end = max(out.first_dirty, min(end, too_young(log, first, now_ms)))
    last = min(max(0, log_floor(log, end)), log.count - 1)
    out.first_uncleanable = log.segments[last].base_offset
    for i in range(last):
        if log.segments[i].base_offset < out.first_dirty:
            out.clean_bytes += log.segments[i].size
        if i >= first:
            out.cleanable_bytes += log.segments[i].size
    out.overdue_ms = overdue(log, first, now_ms)


cdef int pass_survey(Log* log, int64_t checkpoint, int64_t now_ms, Survey* out) noexcept nogil:
    if not log_lock_soon(log):
        return LOG_HELD
    cdef int code = log_usable(log)
    if code == LOG_OK:
        survey_locked(log, checkpoint, now_ms, out)
    pthread_mutex_unlock(&log.lock)
    return code


# ---- segments

cdef int hold(Log* log, int64_t end, LogConfig* cfg, Held* out) noexcept nogil:
    """Take the settings, and the segments that begin below `end`, all but the active one."""
    cdef int32_t count = 0
    cdef int code
    memset(out, 0, sizeof(Held))
    pthread_mutex_lock(&log.lock)
    cfg[0] = log.cfg
    code = log_usable(log)
    if code == LOG_OK:
        while count < log.count - 1 and log.segments[count].base_offset < end:
            count += 1
        code = held_take(log, count, out)
    pthread_mutex_unlock(&log.lock)
    return code


cdef int open_at(Log* log, Segment* s, int64_t offset, int64_t* position) noexcept nogil:
    """Have the file open, and know where to begin so as not to miss an offset. Retention may have
    taken the segment: then its file has another name."""
    cdef Hint hint
    cdef int code
    cdef int error = 0
    hint.position = 0
    hint.entry_offset = -1
    pthread_mutex_lock(&log.lock)
    code = log_usable(log)
    if code == LOG_OK and s.deleted:
        code = PASS_REPLACED
    if code == LOG_OK:
        error = log_open_segment(log, s, False)
        if error:
            code = log_disk_error(log, error)
        elif offset > s.base_offset:
            segment_hint(s, offset, &hint)
    pthread_mutex_unlock(&log.lock)
    position[0] = segment_begin(s, &hint) if code == LOG_OK else 0
    return code


cdef int walk_segment(Pass* c, Segment* s, int64_t size, int64_t position, Visit visit,
                      bint* done) noexcept nogil:
    """Each batch, whole, to `visit`."""
    cdef Walk w
    cdef const uint8_t* p
    cdef int64_t taken = position + c.output.size
    cdef int64_t moved = taken          # of this segment, and written
    cdef int step
    cdef int code = LOG_OK
    done[0] = False
    if walk_init(&w, s.fd, position, size, c.io_bytes) != 0:
        return LOG_NO_MEMORY
    while code == LOG_OK and not done[0]:
        step = walk_next(&w)
        if step != WALK_BATCH:
            if step != WALK_END:
                code = log_disk_error(c.log, w.error) if step == WALK_ERROR else LOG_CORRUPT
            break
        p = walk_bytes(&w, w.info.length)
        if p == NULL:
            code = log_disk_error(c.log, w.error) if w.error else LOG_NO_MEMORY
            break
        code = visit(c, p, &w, done)
        moved = w.next + c.output.size
        if code == LOG_OK and moved - taken >= c.io_bytes:
            take(c.throttle, moved - taken, c.stop)
            taken = moved
            code = go_on(c)
    take(c.throttle, moved - taken, c.stop)
    walk_free(&w)
    return code


cdef int go_on(Pass* c) noexcept nogil:
    return PASS_STOPPED if atomic_load_i32(c.stop) else log_usable(c.log)


# ---- first pass: the map

cdef int visit_map(Pass* c, const uint8_t* p, Walk* w, bint* done) noexcept nogil:
    c.filter.counts.mapped_bytes += w.info.length
    return filter_map(&c.filter, p, &w.info, c.end_offset, done)


cdef int build_map(Pass* c, const Held* held, int64_t first_dirty,
                   int64_t end) noexcept nogil:
    """Map [first_dirty, end), or as much of it as there is room for."""
    cdef int64_t position
    cdef int32_t i = 0
    cdef bint full = False
    cdef int code = LOG_OK
    c.end_offset = first_dirty          # where the visits begin to count
    while i + 1 < held.count and held.segments[i + 1].base_offset <= first_dirty:
        i += 1
    while i < held.count and code == LOG_OK and not full:
        code = open_at(c.log, held.segments[i], first_dirty, &position)
        if code == LOG_OK:
            code = walk_segment(c, held.segments[i], held.sizes[i], position, visit_map, &full)
        i += 1
        if code == LOG_OK and not full:
            c.filter.map.latest_offset = \
                (held.segments[i].base_offset if i < held.count else end) - 1
    c.end_offset = c.filter.map.latest_offset + 1
    return code


# ---- second pass: groups

cdef int64_t index_bytes(const Segment* s, const char* suffix) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef stat_t status
    segment_path(s, suffix, path)
    return status.st_size if stat(path, &status) == 0 else 0


cdef int32_t group_end(Pass* c, const Held* held, int32_t first, int64_t end) noexcept nogil:
    """One beyond the last segment that goes into one with `first`: log and indexes within their
    settings, offsets within what an index holds."""
    cdef int64_t log_bytes = held.sizes[first]
    cdef int64_t offsets = index_bytes(held.segments[first], ".index")
    cdef int64_t times = index_bytes(held.segments[first], ".timeindex")
    cdef int64_t most = c.cfg.segment_index_bytes
    cdef int64_t last_offset
    cdef int32_t i = first + 1
    while i < held.count and held.segments[i].base_offset < c.end_offset:
        log_bytes += held.sizes[i]
        if log_bytes > c.cfg.segment_bytes:
            break
        offsets += index_bytes(held.segments[i], ".index")
        times += index_bytes(held.segments[i], ".timeindex")
        last_offset = (held.segments[i + 1].base_offset if i + 1 < held.count else end) - 1
        if offsets > most or times > most or (
                held.sizes[i] > 0
                and last_offset - held.segments[first].base_offset > INT32_MAX):
            break
        i += 1
    return i


cdef int visit_clean(Pass* c, const uint8_t* p, Walk* w, bint* done) noexcept nogil:
    cdef int code = filter_batch(&c.filter, p, &w.info)
    if code == FILTER_NO_ROOM:
        c.error = c.filter.error
        return log_disk_error(c.log, c.error)
    return code


cdef int fill_output(Pass* c, const Held* held, int32_t first, int32_t n) noexcept nogil:
    cdef int64_t position
    cdef bint ignored
    cdef int32_t i
    cdef int code = LOG_OK
    for i in range(first, first + n):
        code = open_at(c.log, held.segments[i], -1, &position)
        if code == LOG_OK:
            code = walk_segment(c, held.segments[i], held.sizes[i], 0, visit_clean, &ignored)
        if code == LOG_OK:
            code = go_on(c)
        if code != LOG_OK:
            return code
    c.error = output_finish(&c.output, held.segments[first + n - 1])
    if c.error:
        code = log_usable(c.log)
        return log_disk_error(c.log, c.error) if code == LOG_OK else code
    return LOG_OK


cdef int ask_for_room(Pass* c, const Held* held, int32_t first, int32_t n) noexcept nogil:
    """For as much as the segments take now: nobody knows yet what stays of them."""
    cdef int64_t bytes = 0
    cdef int32_t i
    for i in range(first, first + n):
        bytes += held.sizes[i]
    return go_on(c) if c.ask(c.asker, bytes) == 0 else PASS_NO_CALLER


cdef int clean_group(Pass* c, const Held* held, int32_t first, int32_t n) noexcept nogil:
    cdef int code = ask_for_room(c, held, first, n)
    if code == LOG_OK:
        code = last_records_load(&c.filter.producers, c.log)
    if code == LOG_OK:
        code = output_open(&c.output, c.log, held.segments[first].base_offset)
    if code == LOG_OK:
        code = fill_output(c, held, first, n)
        if code != LOG_OK:
            output_discard(&c.output)
        else:
            code = swap_segments(c.log, &held.segments[first], &held.sizes[first], n, &c.output,
                                 c.filter.now_ms, &c.error)
    last_records_free(&c.filter.producers)
    if code == LOG_OK:
        c.segments_before += n
        c.segments_after += 1
    return code


cdef int clean_held(Pass* c, const Held* held, int64_t first_dirty, int64_t end) noexcept nogil:
    cdef int32_t i = 0
    cdef int32_t n
    cdef int code
    # Not from where its segment begins: the walk starts behind the markers of what ended before.
    code = txns_load(&c.filter.txns, c.log, first_dirty, end)
    if code == LOG_OK:
        code = build_map(c, held, first_dirty, end)
    txns_free(&c.filter.txns)
    if code == LOG_OK:
        code = txns_load(&c.filter.txns, c.log, held.segments[0].base_offset, end)
    if code == LOG_OK:
        txns_rewind(&c.filter.txns)
    while code == LOG_OK and i < held.count and held.segments[i].base_offset < c.end_offset:
        n = group_end(c, held, i, end) - i
        code = clean_group(c, held, i, n)
        i += n
    return code


cdef int pass_clean(Pass* c, int64_t first_dirty, int64_t first_uncleanable) noexcept nogil:
    cdef Held held
    cdef int64_t ignored
    cdef int code
    memset(&c.filter.counts, 0, sizeof(c.filter.counts))
    c.filter.output = &c.output
    c.filter.end_offset = first_uncleanable
    c.end_offset = first_dirty
    c.error = c.segments_before = c.segments_after = 0
    code = log_flush(c.log, c.filter.now_ms, &ignored)
    if code != LOG_OK:
        return code
    code = hold(c.log, first_uncleanable, &c.cfg, &held)
    c.filter.delete_retention_ms = c.cfg.delete_retention_ms
    if code == LOG_OK and held.count > 0:
        if map_open(c.filter.map, c.map_slots, c.load_factor, first_uncleanable - first_dirty):
            code = clean_held(c, &held, first_dirty, first_uncleanable)
        else:
            code = LOG_NO_MEMORY
        map_close(c.filter.map)
    held_release(&held)
    txns_free(&c.filter.txns)
    return code


cdef void pass_free(Pass* c) noexcept nogil:
    filter_free(&c.filter)
    output_free(&c.output)
