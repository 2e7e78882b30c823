"""Read from the log of a partition (see log_read.pxd).

Under the lock: which segment, where to begin, where to stop, one reference. The walk from there to
the batch wanted reads headers from the file and holds no lock.

A network thread is not to wait for somebody who stands in the disk with the lock: `patient` says
whether the asker may.
"""
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i64
from kbroker.ext.epochs cimport epochs_at, epochs_end_offset, epochs_latest
from kbroker.ext.index cimport offset_index_beyond
from kbroker.ext.log_state cimport (
    LOG_CORRUPT,
    LOG_HELD,
    LOG_OFFSET_OUT_OF_RANGE,
    LOG_OK,
    LOG_STORAGE_ERROR,
    READ_TO_HW,
    READ_TO_LSO,
    Position,
    log_disk_error,
    log_end_position,
    log_find_segment,
    log_floor,
    log_index_limits,
    log_locate,
    log_lock_soon,
    log_open_segment,
    log_recall,
    log_remember,
    log_usable,
    log_watermarks,
)
from kbroker.ext.posix cimport (
    pthread_mutex_lock, pthread_mutex_trylock, pthread_mutex_unlock,
)
from kbroker.ext.segment cimport (
    FIND_BATCH,
    FIND_BROKEN,
    FIND_MISLED,
    FIND_NONE,
    Found,
    Hint,
    IndexLimits,
    segment_find,
    segment_hint,
    segment_rebuild_indexes,
    segment_ref,
    segment_unref,
)
from kbroker.ext.txn_index cimport AbortedList, txn_index_collect

cdef inline bint enter(Log* log, bint patient) noexcept nogil:
    if not patient:
        return log_lock_soon(log)
    pthread_mutex_lock(&log.lock)
    return True


ctypedef struct Start:                  # what the lock gave: a segment held, and where to look
    Segment* segment
    Hint hint
    bint exact                          # hint.position is the batch itself
    int64_t first_length                # its length when exact and known, else 0


# ---- bounds

cdef int bound_of(Log* log, int isolation, Position* out) noexcept nogil:
    """The end of what may be read."""
    if isolation == READ_TO_HW:
        out[0] = log.hw_at
        return LOG_OK
    if isolation != READ_TO_LSO:
        log_end_position(log, out)
        return LOG_OK
    if log.lso_at.offset != log.lso:
        if log_locate(log, log.lso, &log.lso_at) != LOG_OK:
            log.lso_at.offset = -1
            return LOG_STORAGE_ERROR
    out[0] = log.lso_at
    return LOG_OK


cdef int64_t end_in(const Segment* s, const Position* bound) noexcept nogil:
    """How far this segment may be read."""
    if s.base_offset < bound.segment_base:
        return s.size
    return min(bound.byte, s.size) if s.base_offset == bound.segment_base else 0


# ---- start

cdef int start_in(Log* log, int32_t i, int64_t offset, const Position* bound,
                  Start* out) noexcept nogil:
    """Hold segment i and say where to look for the offset in it; no segment beyond the bound."""
    cdef Segment* s = log.segments[i]
    cdef const Position* known
    cdef int error
    out.segment = NULL
    if s.base_offset > bound.segment_base:
        return LOG_OK
    error = log_open_segment(log, s, False)
    if error:
        return log_disk_error(log, error)
    known = log_recall(log, offset)
    out.exact = known != NULL and known.segment_base == s.base_offset
    if out.exact:
        out.hint.position = known.byte
        out.hint.entry_offset = -1
    elif offset <= s.base_offset:
        out.hint.position = 0
        out.hint.entry_offset = -1
    else:
        segment_hint(s, offset, &out.hint)
    out.hint.end = end_in(s, bound)
    s.used = 1
    segment_ref(s)
    out.segment = s
    return LOG_OK


cdef int begin(Log* log, int64_t offset, int isolation, Position* bound, Start* start,
               ReadSlice* out) noexcept nogil:
    """Watermarks, bound and start; start.segment is NULL when there is nothing to read."""
    cdef int code = log_usable(log)
    log_watermarks(log, &out.at)
    start.segment = NULL
    if code != LOG_OK:
        return code
    if offset < log.log_start or offset > log.leo:
        return LOG_OFFSET_OUT_OF_RANGE
    code = bound_of(log, isolation, bound)
    if code != LOG_OK or offset > bound.offset:
        return code
    if offset == bound.offset:
        if bound.offset > log.segments[0].base_offset:      # an empty log has no use for it
            log_remember(log, bound)
        return LOG_OK
    return start_in(log, max(0, log_floor(log, offset)), offset, bound, start)


cdef int next_start(Log* log, int64_t offset, const Position* bound, bint patient,
                    Start* start) noexcept nogil:
    """All of this segment lies below the offset: go on with the one behind it. A compacted one that
    took its place in the meantime may reach further: then with that."""
    cdef Segment* done = start.segment
    cdef int code = LOG_OK
    start.segment = NULL
    if not enter(log, patient):
        segment_unref(done)
        return LOG_HELD
    code = log_usable(log)
    cdef int32_t i = log_floor(log, done.base_offset)
    if i < 0 or log.segments[i] == done:
        i += 1
    if code == LOG_OK and i < log.count:
        code = start_in(log, i, offset, bound, start)
    pthread_mutex_unlock(&log.lock)
    segment_unref(done)
    return code


cdef int find_without_index(Log* log, int64_t offset, bint patient, Start* start,
                            Found* found) noexcept nogil:
    """The index led astray: begin at the first byte. When that does better, write it anew; else it
    is the segment that is damaged."""
    cdef IndexLimits limits
    cdef int32_t i
    cdef int code
    start.hint.position = 0
    start.hint.entry_offset = -1
    code = segment_find(start.segment, &start.hint, offset, found)
    if code != FIND_BATCH and code != FIND_NONE:
        return code
    if code == FIND_BATCH and found.last_offset >= atomic_load_i64(&log.leo):
        return FIND_BROKEN              # a batch whose offsets are damaged, not the index
    if not enter(log, patient):
        return code                     # the next one who is misled rebuilds it
    log_index_limits(log, &limits)
    i = log_find_segment(log, start.segment.base_offset)
    if i >= 0 and log.segments[i] == start.segment:
        segment_rebuild_indexes(start.segment, &limits)
    pthread_mutex_unlock(&log.lock)
    return code


# ---- read

cdef int find_first(Log* log, int64_t offset, const Position* bound, bint patient, Start* start,
                    Found* found) noexcept nogil:
    """The batch to begin with, through as many segments as it takes; LOG_OK with no segment held
    when the bound comes first."""
    cdef int code
    while start.segment != NULL:
        code = segment_find(start.segment, &start.hint, offset, found)
        if code == FIND_MISLED:
            code = find_without_index(log, offset, patient, start, found)
        if code == FIND_BATCH:
            return LOG_OK
        if code != FIND_NONE:
            segment_unref(start.segment)
            start.segment = NULL
            return LOG_CORRUPT if code == FIND_BROKEN else LOG_STORAGE_ERROR
        code = next_start(log, offset, bound, patient, start)
        if code != LOG_OK:
            return code
    return LOG_OK


cdef void remember_end(Log* log, const Position* bound) noexcept nogil:
    """Where the next read begins, most likely: good to know, and not worth to wait for."""
    if pthread_mutex_trylock(&log.lock) == 0:
        log_remember(log, bound)
        pthread_mutex_unlock(&log.lock)


cdef int read(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
              bint patient, ReadSlice* out) noexcept nogil:
    cdef Position bound
    cdef Start start
    cdef Found found
    cdef int64_t length
    memset(out, 0, sizeof(ReadSlice))
    out.fd = -1
    if not enter(log, patient):
        log_watermarks(log, &out.at)
        return LOG_HELD
    cdef int code = begin(log, offset, isolation, &bound, &start, out)
    pthread_mutex_unlock(&log.lock)
    if code != LOG_OK or start.segment == NULL:
        return code
    code = find_first(log, offset, &bound, patient, &start, &found)
    if code != LOG_OK or start.segment == NULL:
        return code
    length = max_bytes
    if found.length > length:
        length = found.length if min_one else 0
    length = min(length, start.hint.end - found.position)
    if length <= 0:
        segment_unref(start.segment)
        return LOG_OK
    out.segment = start.segment
    out.fd = start.segment.fd
    out.position = found.position
    out.length = length
    if found.position + length == bound.byte and start.segment.base_offset == bound.segment_base:
        remember_end(log, &bound)
    return LOG_OK


cdef int log_read(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
                  ReadSlice* out) noexcept nogil:
    return read(log, offset, max_bytes, isolation, min_one, True, out)


cdef int log_read_soon(Log* log, int64_t offset, int32_t max_bytes, int isolation, bint min_one,
                       ReadSlice* out) noexcept nogil:
    return read(log, offset, max_bytes, isolation, min_one, False, out)


# ---- aborted transactions

cdef int64_t upper_bound_of(Log* log, const ReadSlice* slice) noexcept nogil:
    """An offset that no record of the slice reaches."""
    cdef int64_t bound = offset_index_beyond(&slice.segment.offsets,
                                             slice.position + slice.length)
    cdef int32_t next = log_floor(log, slice.segment.base_offset) + 1
    if bound >= 0:
        return bound
    return log.segments[next].base_offset if next < log.count else log.leo


cdef Segment* next_with_aborted(Log* log, int32_t i) noexcept nogil:
    """The first segment from number i on that has aborted transactions, held."""
    while i < log.count:
        if log.segments[i].has_aborted:
            segment_ref(log.segments[i])
            return log.segments[i]
        i += 1
    return NULL


cdef int collect_aborted(Log* log, int64_t offset, const ReadSlice* slice, AbortedList* found,
                         bint* again) noexcept nogil:
    """One pass over the transaction indexes, from the segment on that holds the slice or took the
    place of the one that does. *again: an index was replaced while it was read by its name."""
    cdef Segment* s
    cdef int64_t upper_bound
    cdef int64_t base
    cdef bint complete = False
    cdef int error = 0
    again[0] = False
    if not log_lock_soon(log):
        return LOG_HELD
    upper_bound = upper_bound_of(log, slice)
    s = next_with_aborted(log, max(0, log_floor(log, slice.segment.base_offset)))
    pthread_mutex_unlock(&log.lock)
    while s != NULL and error == 0:
        error = txn_index_collect(s, offset, upper_bound, found, &complete)
        base = s.base_offset
        if not log_lock_soon(log):
            error = LOG_HELD
            break
        again[0] = s.deleted != 0
        segment_unref(s)
        s = NULL
        if not again[0] and not complete:
            s = next_with_aborted(log, log_floor(log, base) + 1)
        pthread_mutex_unlock(&log.lock)
    if s != NULL:
        segment_unref(s)
    return error


cdef int log_aborted(Log* log, int64_t offset, const ReadSlice* slice, AbortedTxn** out,
                     int* count) noexcept nogil:
    cdef AbortedList found
    cdef bint again = True
    cdef int error = 0
    out[0] = NULL
    count[0] = 0
    if slice.segment == NULL:
        return LOG_OK
    memset(&found, 0, sizeof(AbortedList))
    while again and error == 0:
        found.count = 0
        error = collect_aborted(log, offset, slice, &found, &again)
    if error:
        free(found.items)
        return LOG_HELD if error == LOG_HELD else LOG_STORAGE_ERROR
    out[0] = found.items
    count[0] = found.count
    return LOG_OK


# ---- leader epochs

cdef int log_end_offset_for_epoch(Log* log, int32_t epoch, int32_t* found,
                                  int64_t* end_offset) noexcept nogil:
    found[0] = -1
    end_offset[0] = -1
    if not log_lock_soon(log):
        return LOG_HELD
    cdef int code = log_usable(log)
    epochs_end_offset(&log.epochs, epoch, log.leo, found, end_offset)
    pthread_mutex_unlock(&log.lock)
    return code


cdef int32_t log_epoch_at(Log* log, int64_t offset) noexcept nogil:
    if not log_lock_soon(log):
        return -1
    cdef int32_t epoch = epochs_at(&log.epochs, offset)
    pthread_mutex_unlock(&log.lock)
    return epoch


cdef int32_t log_latest_epoch(Log* log) noexcept nogil:
    pthread_mutex_lock(&log.lock)
    cdef int32_t epoch = epochs_latest(&log.epochs)
    pthread_mutex_unlock(&log.lock)
    return epoch
