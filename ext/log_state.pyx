"""The log of one partition: its parts and their upkeep (see log_state.pxd)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, strcpy, strlen

from kbroker.ext.atomics cimport (
    atomic_add_i32,
    atomic_cas_i32,
    atomic_cas_i64,
    atomic_load_i32,
    atomic_load_i64,
    atomic_store_i32,
    atomic_store_i64,
)
from kbroker.ext.clock cimport realtime_ms, timespec_of
from kbroker.ext.debug cimport OBJECT_LOG, object_born, object_died
from kbroker.ext.epochs cimport epochs_free, epochs_init
from kbroker.ext.open_files cimport FileOwner, files_forget, files_make_room, files_note
from kbroker.ext.partition_transactions cimport txns_first_unstable, txns_stable_below
from kbroker.ext.posix cimport (
    CLOCK_MONOTONIC,
    EDQUOT,
    EFBIG,
    EMFILE,
    ENFILE,
    ENOMEM,
    ENOSPC,
    RLIMIT_NOFILE,
    clock_gettime,
    getrlimit,
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_timedlock,
    pthread_mutex_trylock,
    pthread_mutex_unlock,
    rlimit_t,
    timespec_t,
)
from kbroker.ext.producers cimport producers_free
from kbroker.ext.segment cimport (
    FIND_BATCH,
    FIND_BROKEN,
    FIND_ERROR,
    FIND_MISLED,
    FIND_NONE,
    Found,
    Hint,
    segment_find,
    segment_hint,
    segment_close_unused,
    segment_open,
    segment_rebuild_indexes,
    segment_place,
    segment_retire,
    segment_unref,
)


cdef enum:
    LOCK_WAIT_MS = 50
    SPARE = 32                  # descriptors that segments leave, or a 16th of a lower limit

cdef int32_t taken_offline = 0              # atomic: see logs_taken_offline


# ---- life

cdef char* copy_text(const char* text) noexcept nogil:
    cdef char* copy = <char*> malloc(strlen(text) + 1)
    if copy != NULL:
        strcpy(copy, text)
    return copy


cdef uint64_t seed(const Log* log) noexcept nogil:
    cdef timespec_t now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return (<uint64_t> now.tv_nsec << 20) ^ <uint64_t> now.tv_sec ^ <uint64_t> log | 1


cdef Log* log_new(const char* dir, const char* topic, const uint8_t* topic_id,
                  int32_t partition, const LogConfig* cfg) noexcept nogil:
    cdef Log* log = <Log*> calloc(1, sizeof(Log))
    if log == NULL:
        return NULL
    log.refs = 1
    log.files.let_go = let_go
    log.dir = copy_text(dir)
    log.topic = copy_text(topic)
    log.partition = partition
    log.cfg = cfg[0]
    log.snapshot_offset = NO_SNAPSHOT
    log.mark = INT64_MAX
    log.random = seed(log)
    memcpy(log.topic_id, topic_id, 16)
    epochs_init(&log.epochs)
    pthread_mutex_init(&log.lock, NULL)
    pthread_mutex_init(&log.flush_lock, NULL)
    pthread_mutex_init(&log.watch_lock, NULL)
    log_forget_positions(log)
    object_born(OBJECT_LOG)
    if log.dir == NULL or log.topic == NULL:
        log_unref(log)
        return NULL
    return log


# ---- open files

cdef int32_t let_go(FileOwner* owner) noexcept nogil:
    cdef Log* log = <Log*> owner
    cdef Segment* s
    cdef int32_t i
    cdef int32_t left = 0
    if pthread_mutex_trylock(&log.lock) != 0:
        return 1
    for i in range(log.count):
        s = log.segments[i]
        if atomic_load_i32(&s.refs) == 1:                   # no reader and no sync
            segment_close_unused(s)
        left += s.fd >= 0
    pthread_mutex_unlock(&log.lock)
    return left


cdef bint is_spare(int fd) noexcept nogil:
    """Whether a descriptor is one of the last. The kernel gives the lowest that is free, so all
    below it are taken. The limit is read each time: it may change while the broker runs."""
    cdef rlimit_t limit
    if getrlimit(RLIMIT_NOFILE, &limit) != 0:
        return False
    return <uint64_t> fd >= limit.rlim_cur - min(limit.rlim_cur // 16, <uint64_t> SPARE)


cdef int log_open_segment(Log* log, Segment* s, bint create) noexcept nogil:
    cdef int error
    if s.fd >= 0:
        if not log.files.listed:        # of a segment that compaction wrote
            files_note(&log.files)
        return 0
    files_make_room(False)
    error = segment_open(s, create)
    if (error == EMFILE or error == ENFILE) and files_make_room(True):
        error = segment_open(s, create)
    if error:
        return error
    if is_spare(s.fd):
        files_make_room(True)
    files_note(&log.files)
    return 0


cdef void log_ref(Log* log) noexcept nogil:
    atomic_add_i32(&log.refs, 1)


cdef void owners_free(Log* log) noexcept nogil:
    """Of the journals that it has been through: none has it on a list any more."""
    cdef JournalOwner* owner = log.journal_owner
    cdef JournalOwner* before
    while owner != NULL:
        before = owner.before
        free(owner)
        owner = before


cdef void log_unref(Log* log) noexcept nogil:
    cdef int32_t i
    if atomic_add_i32(&log.refs, -1) > 0:
        return
    files_forget(&log.files)
    for i in range(log.count):
        segment_unref(log.segments[i])
    for i in range(log.retired_count):
        segment_unref(log.retired[i])
    owners_free(log)
    free(log.segments)
    free(log.retired)
    free(log.pending)
    free(log.recent)
    free(log.dir)
    free(log.topic)
    epochs_free(&log.epochs)
    producers_free(log.producers)
    pthread_mutex_destroy(&log.lock)
    pthread_mutex_destroy(&log.flush_lock)
    pthread_mutex_destroy(&log.watch_lock)
    free(log)
    object_died(OBJECT_LOG)


cdef void log_watermarks(const Log* log, Watermarks* out) noexcept nogil:
    out.log_start = atomic_load_i64(&log.log_start)
    out.lso = atomic_load_i64(&log.lso)
    out.hw = atomic_load_i64(&log.hw)
    out.leo = atomic_load_i64(&log.leo)


cdef void log_acknowledge(Log* log, int64_t end_offset) noexcept nogil:
    cdef int64_t known = atomic_load_i64(&log.acknowledged)
    while known < end_offset and not atomic_cas_i64(&log.acknowledged, &known, end_offset):
        pass


cdef int64_t log_acknowledged(const Log* log) noexcept nogil:
    return min(atomic_load_i64(&log.acknowledged), atomic_load_i64(&log.leo))


cdef bint log_lock_soon(Log* log) noexcept nogil:
    cdef timespec_t until
    if pthread_mutex_trylock(&log.lock) == 0:
        if atomic_load_i32(&log.held):
            atomic_store_i32(&log.held, 0)
        return True
    if atomic_load_i32(&log.held):
        return False
    until = timespec_of((realtime_ms() + LOCK_WAIT_MS) * 1000000)
    if pthread_mutex_timedlock(&log.lock, &until) == 0:
        return True
    atomic_store_i32(&log.held, 1)
    return False


cdef void log_set_leader_epoch(Log* log, int32_t epoch) noexcept nogil:
    atomic_store_i32(&log.leader_epoch, epoch)


# ---- errors

cdef int log_usable(const Log* log) noexcept nogil:
    if atomic_load_i32(&log.closed):
        return LOG_CLOSED
    return LOG_STORAGE_ERROR if atomic_load_i32(&log.offline) else LOG_OK


cdef int log_offline(Log* log, int error) noexcept nogil:
    cdef int32_t seen = 0
    if not atomic_load_i32(&log.offline):
        log.error_errno = error
        if atomic_cas_i32(&log.offline, &seen, 1):
            atomic_add_i32(&taken_offline, 1)
    return LOG_STORAGE_ERROR


cdef int log_disk_error(Log* log, int error) noexcept nogil:
    if error == ENOMEM:
        return LOG_NO_MEMORY
    if error == ENOSPC or error == EDQUOT or error == EFBIG \
            or error == EMFILE or error == ENFILE:
        return LOG_STORAGE_ERROR
    return log_offline(log, error)


def logs_taken_offline():
    """How many logs of this process an error of the disk has taken offline so far. Where it has
    not changed since the last look, no log needs to be asked."""
    return atomic_load_i32(&taken_offline)


# ---- segments

cdef void log_index_limits(const Log* log, IndexLimits* out) noexcept nogil:
    out.interval_bytes = log.cfg.index_interval_bytes
    out.max_bytes = log.cfg.segment_index_bytes


cdef Segment* log_active(const Log* log) noexcept nogil:
    return log.segments[log.count - 1]


cdef int32_t log_floor(const Log* log, int64_t offset) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = log.count
    cdef int32_t middle
    if high > 0 and log.segments[high - 1].base_offset <= offset:
        return high - 1
    while low < high:
        middle = low + (high - low) // 2
        if log.segments[middle].base_offset <= offset:
            low = middle + 1
        else:
            high = middle
    return low - 1


cdef int32_t log_find_segment(const Log* log, int64_t base_offset) noexcept nogil:
    cdef int32_t i = log_floor(log, base_offset)
    return i if i >= 0 and log.segments[i].base_offset == base_offset else -1


cdef bint make_room(Segment*** list, int32_t* capacity, int32_t count) noexcept nogil:
    cdef int32_t larger
    cdef void* moved
    if count <= capacity[0]:
        return True
    larger = max(count, 2 * capacity[0])
    moved = realloc(list[0], larger * sizeof(Segment*))
    if moved == NULL:
        return False
    list[0] = <Segment**> moved
    capacity[0] = larger
    return True


cdef int log_push_segment(Log* log, Segment* s) noexcept nogil:
    if not make_room(&log.segments, &log.capacity, log.count + 1):
        return LOG_NO_MEMORY
    log.segments[log.count] = s
    log.count += 1
    return LOG_OK


cdef int log_retire(Log* log, int32_t first, int32_t n, int64_t now_ms) noexcept nogil:
    cdef int32_t i
    cdef int error = 0
    cdef int failed
    if n <= 0:
        return LOG_OK
    if not make_room(&log.retired, &log.retired_capacity, log.retired_count + n):
        return LOG_NO_MEMORY
    for i in range(first, first + n):
        failed = segment_retire(log.segments[i], now_ms, True)
        error = error or failed
        log.retired[log.retired_count] = log.segments[i]
        log.retired_count += 1
    for i in range(first, log.count - n):
        log.segments[i] = log.segments[i + n]
    log.count -= n
    log.dir_dirty = 1
    log_forget_positions(log)
    return log_disk_error(log, error) if error else LOG_OK


cdef void follow_hw(Log* log, int32_t first, int32_t n) noexcept nogil:
    """The high watermark may stand at the end of one of segments [first, first + n), which are
    about to be replaced: that is where the next one begins."""
    cdef int32_t at = log_find_segment(log, log.hw_at.segment_base)
    if first <= at < first + n:
        log.hw_at.segment_base = log.segments[first + n].base_offset
        log.hw_at.byte = 0


cdef int log_replace(Log* log, int32_t first, int32_t n, Segment* s,
                     int64_t now_ms) noexcept nogil:
    cdef int32_t i
    cdef int error = 0
    cdef int failed
    if not make_room(&log.retired, &log.retired_capacity, log.retired_count + n):
        return LOG_NO_MEMORY
    follow_hw(log, first, n)
    for i in range(first, first + n):
        failed = segment_retire(log.segments[i], now_ms,
                                log.segments[i].base_offset != s.base_offset)
        error = error or failed
        log.retired[log.retired_count] = log.segments[i]
        log.retired_count += 1
    # As long as an old file has its name the new ones stay .swap: recovery then completes this,
    # where two segments would overlap.
    error = error or segment_place(s)
    log.segments[first] = s
    for i in range(first + 1, log.count - n + 1):
        log.segments[i] = log.segments[i + n - 1]
    log.count -= n - 1
    log.dir_dirty = 1
    log_forget_positions(log)
    return log_offline(log, error) if error else LOG_OK


# ---- positions

cdef void log_end_position(const Log* log, Position* out) noexcept nogil:
    cdef Segment* s = log_active(log)
    out.offset = log.leo
    out.segment_base = s.base_offset
    out.byte = s.size


cdef int find_in(Log* log, Segment* s, int64_t offset, Found* found) noexcept nogil:
    """FIND_*. When the index leads astray the search begins at the first byte; and when that does
    better, the index is written anew."""
    cdef Hint hint
    cdef IndexLimits limits
    cdef int code
    if log_open_segment(log, s, False) != 0:
        return FIND_ERROR
    segment_hint(s, offset, &hint)
    code = segment_find(s, &hint, offset, found)
    if code != FIND_MISLED:
        return code
    hint.position = 0
    hint.entry_offset = -1
    code = segment_find(s, &hint, offset, found)
    if code == FIND_BATCH or code == FIND_NONE:
        log_index_limits(log, &limits)
        segment_rebuild_indexes(s, &limits)
    return code


cdef int log_locate(Log* log, int64_t offset, Position* out) noexcept nogil:
    cdef Found found
    cdef int code
    cdef int32_t i
    out.offset = offset
    if offset >= log.leo:
        log_end_position(log, out)
        out.offset = offset
        return LOG_OK if offset == log.leo else LOG_OFFSET_OUT_OF_RANGE
    i = max(0, log_floor(log, offset))
    while i < log.count:
        code = find_in(log, log.segments[i], offset, &found)
        if code == FIND_BATCH:
            out.segment_base = log.segments[i].base_offset
            out.byte = found.position
            return LOG_OK
        if code != FIND_NONE:
            return LOG_CORRUPT if code == FIND_BROKEN else LOG_STORAGE_ERROR
        i += 1
    log_end_position(log, out)
    return LOG_OK


cdef void log_remember(Log* log, const Position* at) noexcept nogil:
    if log.recent == NULL:
        log.recent = <Position*> malloc(RECENT_READS * sizeof(Position))
        if log.recent == NULL:
            return
        forget_recent(log)
    if log_recall(log, at.offset) == NULL:
        log.recent[log.recent_next] = at[0]
        log.recent_next = (log.recent_next + 1) % RECENT_READS


cdef const Position* log_recall(const Log* log, int64_t offset) noexcept nogil:
    cdef int i
    for i in range(RECENT_READS if log.recent != NULL else 0):
        if log.recent[i].offset == offset:
            return &log.recent[i]
    return NULL


cdef void forget_recent(Log* log) noexcept nogil:
    cdef int i
    for i in range(RECENT_READS if log.recent != NULL else 0):
        log.recent[i].offset = -1


cdef void log_forget_positions(Log* log) noexcept nogil:
    forget_recent(log)
    log.lso_at.offset = -1


# ---- watermarks

cdef void log_move_hw(Log* log, const Position* at) noexcept nogil:
    log.hw_at = at[0]
    atomic_store_i64(&log.hw, at.offset)
    if log.producers != NULL:
        txns_stable_below(&log.producers.txns, at.offset)
    log_update_lso(log)


cdef void log_update_lso(Log* log) noexcept nogil:
    cdef int64_t unstable = -1
    if log.producers != NULL:
        unstable = txns_first_unstable(&log.producers.txns)
    if unstable >= 0 and max(unstable, log.log_start) < log.hw:
        atomic_store_i64(&log.lso, max(unstable, log.log_start))
        return
    log.lso_at = log.hw_at
    atomic_store_i64(&log.lso, log.hw)
