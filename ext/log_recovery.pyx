"""Open and close the log of a partition (see log_recovery.pxd)."""
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_store_i32
from kbroker.ext.epochs cimport (
    epochs_load,
    epochs_truncate_from_end,
    epochs_truncate_from_start,
)
from kbroker.ext.log_append cimport log_create_segment, log_roll_jitter
from kbroker.ext.log_files cimport (
    FILE_ABORTED,
    FILE_OFFSETS,
    FILE_TIMES,
    FileSet,
    Listing,
    files_list,
    listing_free,
)
from kbroker.ext.log_flush cimport log_sync_all
from kbroker.ext.log_rebuild cimport (
    Rebuilt,
    Start,
    find_end,
    rebuild_end,
    rebuild_epochs,
    rebuild_producers,
    rebuild_segment,
    rebuild_start,
)
from kbroker.ext.log_state cimport (
    LOG_IN_USE,
    LOG_IS_CLOSED,
    LOG_NO_MEMORY,
    LOG_OK,
    LOG_STORAGE_ERROR,
    NO_SNAPSHOT,
    Position,
    log_active,
    log_disk_error,
    log_end_position,
    log_floor,
    log_index_limits,
    log_move_hw,
    log_new,
    log_push_segment,
    log_retire,
    log_unref,
    log_usable,
)
from kbroker.ext.posix cimport (
    EEXIST,
    EILSEQ,
    mkdir,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    stat,
    stat_t,
)
from kbroker.ext.producers cimport producers_free
from kbroker.ext.segment cimport (
    TIMES_UNKNOWN,
    IndexLimits,
    Segment,
    segment_idle,
    segment_new,
    segment_rebuild_indexes,
    segment_seal,
    segment_unref,
)
from kbroker.ext.snapshots cimport Snapshots, snapshot_unlink, snapshot_write

ctypedef struct Opening:                # what the steps of an open share
    Log* log
    const OpenArgs* args
    Listing listing
    Rebuilt rebuilt
    int32_t dropped
    bint epochs_unreadable


# ---- segments as they lie there

cdef int add_segment(Opening* o, const FileSet* files) noexcept nogil:
    cdef stat_t status
    cdef IndexLimits limits
    cdef int error
    cdef Segment* s = segment_new(o.log.dir, files.base_offset)
    if s == NULL or log_push_segment(o.log, s) != LOG_OK:
        return LOG_NO_MEMORY
    if stat(s.path, &status) != 0:
        return log_disk_error(o.log, errno)
    s.size = status.st_size
    s.created_ms = o.args.now_ms if s.size == 0 else TIMES_UNKNOWN
    s.sealed = 1
    s.has_aborted = (files.kinds & FILE_ABORTED) != 0
    if s.size == 0:
        s.offsets.entries = 0
        s.times.entries = 0
        return LOG_OK
    s.largest_timestamp = TIMES_UNKNOWN
    s.first_timestamp = TIMES_UNKNOWN
    if files.kinds & FILE_OFFSETS and files.kinds & FILE_TIMES:
        return LOG_OK
    log_index_limits(o.log, &limits)
    o.rebuilt.indexes_rebuilt += 1
    error = segment_rebuild_indexes(s, &limits)
    return log_disk_error(o.log, error) if error else LOG_OK


cdef int add_segments(Opening* o) noexcept nogil:
    cdef int32_t i
    cdef int code = LOG_OK
    for i in range(o.listing.count):
        code = add_segment(o, &o.listing.sets[i])
        if code != LOG_OK:
            break
    return code


cdef Segment* plan_segment(Log* log) noexcept nogil:
    """A segment at offset 0 whose files the first append creates. NULL: no memory."""
    cdef Segment* s = segment_new(log.dir, 0)
    if s == NULL:
        return NULL
    s.has_files = 0
    s.offsets.entries = 0
    s.times.entries = 0
    s.jitter_ms = log_roll_jitter(log)
    return s


cdef int first_segment(Opening* o) noexcept nogil:
    """Every log has an active segment. One that begins at offset 0 has no files before its first
    append: without them the next start finds the same log."""
    cdef int code = LOG_NO_MEMORY
    cdef Segment* s
    if o.args.log_start == 0:
        s = plan_segment(o.log)
    else:
        s = log_create_segment(o.log, o.args.log_start, o.args.now_ms, &code)
    if s == NULL:
        return code
    if log_push_segment(o.log, s) != LOG_OK:
        segment_unref(s)
        return LOG_NO_MEMORY
    # Its descriptor comes with the first append: an empty partition holds none.
    segment_idle(s)
    return LOG_OK


cdef int drop_failed_rolls(Opening* o) noexcept nogil:
    """An empty segment at an offset that the one before it holds is left of a roll that failed, and
    whose files could not be unlinked then: what was appended since is in the old one."""
    cdef Log* log = o.log
    cdef int32_t i = 1
    cdef int code = LOG_OK
    while i < log.count and code == LOG_OK:
        if log.segments[i].size == 0 and log.segments[i - 1].size > 0:
            code = find_end(log, log.segments[i - 1])
            if code == LOG_OK and log.segments[i - 1].next_offset > log.segments[i].base_offset:
                code = log_retire(log, i, 1, o.args.now_ms)
                o.dropped += 1
                continue
        i += 1
    if log.count > 0:
        log_active(log).sealed = 0
        log_active(log).jitter_ms = log_roll_jitter(log)
    return code


# ---- after a crash

cdef int seal(Opening* o, Segment* s) noexcept nogil:
    cdef IndexLimits limits
    log_index_limits(o.log, &limits)
    cdef int error = segment_seal(s, &limits)
    return log_disk_error(o.log, error) if error else LOG_OK


cdef int recover_from(Opening* o, int32_t first) noexcept nogil:
    """Walk segments from `first` on; behind a cut nothing is kept."""
    cdef Log* log = o.log
    cdef Segment* s
    cdef Start start
    cdef int32_t i = first
    cdef bint torn = False
    cdef int code = LOG_OK
    while i < log.count and code == LOG_OK:
        s = log.segments[i]
        s.sealed = 0
        code = rebuild_start(log, s, o.args.recovery_point, &start)
        if code == LOG_OK and i == first:
            code = rebuild_producers(log, &o.listing.snapshots, start.offset, INT64_MAX,
                                     o.args.now_ms, True)
        if code == LOG_OK:
            code = rebuild_segment(log, s, &start, &o.rebuilt, &torn)
        if code != LOG_OK:
            break
        if torn:
            o.dropped = log.count - i - 1
            code = log_retire(log, i + 1, o.dropped, o.args.now_ms)
            break
        i += 1
        if i < log.count:
            code = seal(o, s)
            if code == LOG_OK and snapshot_write(log.dir, log.segments[i].base_offset,
                                                 log.producers, False) == 0:
                log.snapshot_offset = log.segments[i].base_offset
                log.snapshot_dirty = 1
    return code


cdef int recover(Opening* o) noexcept nogil:
    """The walk finds the leader epochs that began behind the recovery point: the checkpoint may be
    older than a truncation."""
    epochs_truncate_from_end(&o.log.epochs, o.args.recovery_point)
    if not log_active(o.log).has_files:
        return take_as_is(o)
    return recover_from(o, max(0, log_floor(o.log, o.args.recovery_point)))


# ---- after a clean shutdown

cdef int take_as_is(Opening* o) noexcept nogil:
    cdef Log* log = o.log
    cdef Segment* s = log_active(log)
    cdef bint torn = False
    cdef int code
    if s.size > 0:
        code = rebuild_end(log, s, &torn)
        if code != LOG_OK:
            return code
        if torn:
            return recover_from(o, log.count - 1)
    return rebuild_producers(log, &o.listing.snapshots, s.next_offset, INT64_MAX, o.args.now_ms,
                             False)


# ---- what follows from the segments

cdef int start_over(Opening* o) noexcept nogil:
    """Records were deleted up to beyond what is left of the log: it goes on at log start."""
    cdef Log* log = o.log
    cdef int32_t count = log.count
    cdef int code
    if log_active(log).next_offset >= o.args.log_start:
        return LOG_OK
    code = log_retire(log, 0, count, o.args.now_ms)
    o.dropped += count
    return first_segment(o) if code == LOG_OK else code


cdef void set_offsets(Opening* o) noexcept nogil:
    cdef Log* log = o.log
    cdef Position end
    log.leo = log_active(log).next_offset
    log.log_start = min(log.leo, max(o.args.log_start, log.segments[0].base_offset))
    log.recovery_point = log.leo if o.args.clean else min(o.args.recovery_point, log.leo)
    log.last_flushed_ms = o.args.now_ms
    log_end_position(log, &end)
    log_move_hw(log, &end)


cdef int load_epochs(Opening* o) noexcept nogil:
    cdef int error = epochs_load(&o.log.epochs, o.log.dir)
    o.epochs_unreadable = error == EILSEQ
    if error == 0 or error == EILSEQ:
        return LOG_OK
    return log_disk_error(o.log, error)


cdef int mend_epochs(Opening* o) noexcept nogil:
    """Of a checkpoint that could not be read; what a walk has found is not the whole."""
    cdef Log* log = o.log
    if o.epochs_unreadable:
        log.epochs.count = 0
        if rebuild_epochs(log) != LOG_OK:
            return LOG_STORAGE_ERROR
    epochs_truncate_from_end(&log.epochs, log.leo)
    epochs_truncate_from_start(&log.epochs, log.log_start)
    return LOG_OK


cdef void drop_snapshots(Opening* o) noexcept nogil:
    """Of the snapshots that stand at no segment's base offset only the newest is of use."""
    cdef Snapshots* all = &o.listing.snapshots
    cdef int32_t i
    cdef int32_t at
    for i in range(all.count - 1):
        at = log_floor(o.log, all.offsets[i])
        if at < 0 or o.log.segments[at].base_offset != all.offsets[i]:
            snapshot_unlink(o.log.dir, all.offsets[i])


cdef void forget_empty_producers(Log* log) noexcept nogil:
    if log.producers != NULL and log.producers.count == 0:
        producers_free(log.producers)
        log.producers = NULL


cdef int open_log(Opening* o) noexcept nogil:
    cdef int code = LOG_OK
    cdef int error
    o.log.parent_dirty = mkdir(o.log.dir, 0o755) == 0
    if not o.log.parent_dirty and errno != EEXIST:
        return log_disk_error(o.log, errno)
    error = files_list(o.log.dir, &o.listing)
    if error:
        return log_disk_error(o.log, error)
    code = add_segments(o)
    if code == LOG_OK:
        code = drop_failed_rolls(o)
    if code == LOG_OK and o.log.count == 0:
        code = first_segment(o)
    if code == LOG_OK:
        o.log.log_start = max(o.args.log_start, o.log.segments[0].base_offset)
        code = load_epochs(o)
    if code == LOG_OK:
        code = take_as_is(o) if o.args.clean else recover(o)
    if code == LOG_OK:
        code = start_over(o)
    if code != LOG_OK:
        return code
    set_offsets(o)
    drop_snapshots(o)
    forget_empty_producers(o.log)
    return mend_epochs(o)


cdef void close_files_locked(Log* log) noexcept nogil:
    cdef int32_t i
    for i in range(log.count):
        segment_idle(log.segments[i])


cdef void log_close_files(Log* log) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    close_files_locked(log)
    pthread_mutex_unlock(&log.lock)


cdef Log* log_open(const OpenArgs* args, OpenReport* report, int* error,
                   int* error_errno) noexcept nogil:
    cdef Opening o
    memset(&o, 0, sizeof(Opening))
    o.args = args
    o.log = log_new(args.dir, args.topic, args.topic_id, args.partition, args.cfg)
    error_errno[0] = 0
    if o.log == NULL:
        error[0] = LOG_NO_MEMORY
        return NULL
    error[0] = open_log(&o)
    report.bytes_walked = o.rebuilt.bytes_walked
    report.bytes_cut = o.rebuilt.bytes_cut
    report.indexes_rebuilt = o.rebuilt.indexes_rebuilt
    report.segments_dropped = o.dropped
    listing_free(&o.listing)
    if error[0] != LOG_OK:
        error_errno[0] = o.log.error_errno
        log_unref(o.log)
        return NULL
    # A start may open more logs than there are descriptors. The first use opens the files again.
    log_close_files(o.log)
    return o.log


cdef Log* log_create(const OpenArgs* args, int* error) noexcept nogil:
    cdef Opening o
    memset(&o, 0, sizeof(Opening))
    o.args = args
    o.log = log_new(args.dir, args.topic, args.topic_id, args.partition, args.cfg)
    error[0] = first_segment(&o) if o.log != NULL else LOG_NO_MEMORY
    if error[0] == LOG_OK:
        set_offsets(&o)
    elif o.log != NULL:
        log_unref(o.log)
        o.log = NULL
    return o.log


cdef void log_set_journal(Log* log, Journal* journal, int32_t directory) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    log.directory = directory
    log.journal = journal
    pthread_mutex_unlock(&log.lock)


# ---- close

cdef int write_last_snapshot(Log* log) noexcept nogil:
    """Where producers are, or a snapshot that tells of an earlier state."""
    if log.snapshot_offset == log.leo:
        return 0
    if log.snapshot_offset == NO_SNAPSHOT and log.producers == NULL:
        return 0
    cdef int error = snapshot_write(log.dir, log.leo, log.producers, False)
    if error == 0:
        log.snapshot_offset = log.leo
        log.snapshot_dirty = 1
        log.dir_dirty = 1
    return error


cdef int close_clean(Log* log, bint sync) noexcept nogil:
    cdef IndexLimits limits
    cdef Segment* s = log_active(log)
    cdef int code
    cdef int error = 0
    if not s.has_files:
        # Never appended to. Its leader epoch begins at offset 0, as the next start finds without a
        # checkpoint.
        return LOG_OK
    log_index_limits(log, &limits)
    if s.size > 0 or s.sealed:
        error = segment_seal(s, &limits)
    error = error or write_last_snapshot(log)
    if error:
        return log_disk_error(log, error)
    code = log_sync_all(log, sync)
    if code == LOG_OK:
        log.recovery_point = log.leo
    return code


cdef int log_close(Log* log, bint clean, bint sync) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if clean and code == LOG_OK:
        code = close_clean(log, sync)
    if log.closed == LOG_IN_USE:
        atomic_store_i32(&log.closed, LOG_IS_CLOSED)
    close_files_locked(log)
    pthread_mutex_unlock(&log.lock)
    return code
