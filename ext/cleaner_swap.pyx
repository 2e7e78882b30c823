"""Put a cleaned segment in the place of those that it was made of (see cleaner_swap.pxd)."""
from kbroker.ext.atomics cimport atomic_store_i64
from kbroker.ext.cleaner_output cimport output_discard, output_rename, output_segment
from kbroker.ext.journal_files cimport directory_sync
from kbroker.ext.log_state cimport (
    LOG_NO_MEMORY,
    LOG_OK,
    log_disk_error,
    log_find_segment,
    log_replace,
    log_usable,
)
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.segment cimport segment_close_unused, segment_unref


cdef int32_t find_old(const Log* log, Segment** old, const int64_t* sizes,
                      int32_t n) noexcept nogil:
    """Number of the first of them; -1 when they are not all there, as they were and closed."""
    cdef int32_t first = log_find_segment(log, old[0].base_offset)
    cdef int32_t i
    if first < 0 or first + n >= log.count:
        return -1
    for i in range(n):
        if log.segments[first + i] != old[i] or old[i].size != sizes[i]:
            return -1
    return first


cdef int replace_locked(Log* log, Segment** old, const int64_t* sizes, int32_t n, Segment* s,
                        int64_t now_ms, bint* placed) noexcept nogil:
    cdef int code = log_usable(log)
    cdef int32_t first
    cdef int32_t i
    if code != LOG_OK:
        return code
    first = find_old(log, old, sizes, n)
    if first < 0:
        return SWAP_REPLACED
    s.created_ms = old[0].created_ms
    s.jitter_ms = old[0].jitter_ms
    s.last_used_ms = now_ms
    code = log_replace(log, first, n, s, now_ms)
    if code == LOG_NO_MEMORY:
        return code
    placed[0] = True
    atomic_store_i64(&log.cleaned_bytes, 0)     # it counts as a segment from here on
    segment_close_unused(s)             # a log of many segments would run out of descriptors
    for i in range(n):
        segment_close_unused(old[i])
    return code


cdef int replace(Log* log, Segment** old, const int64_t* sizes, int32_t n, Segment* s,
                 int64_t now_ms, bint* placed) noexcept nogil:
    pthread_mutex_lock(&log.flush_lock)
    pthread_mutex_lock(&log.lock)
    cdef int code = replace_locked(log, old, sizes, n, s, now_ms, placed)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flush_lock)
    return code


cdef int stand_by(Log* log, Output* o) noexcept nogil:
    """Step 3: .cleaned to .swap. 0 or an errno."""
    cdef int error = output_rename(o, ".cleaned", ".swap")
    return error if error else directory_sync(log.dir)


cdef int told(Log* log, int error) noexcept nogil:
    """A closed log may have its folder moved away under it: that is no error of the disk."""
    cdef int code = log_usable(log)
    return log_disk_error(log, error) if code == LOG_OK else code


cdef int swap_segments(Log* log, Segment** old, const int64_t* sizes, int32_t n, Output* o,
                       int64_t now_ms, int* error) noexcept nogil:
    cdef Segment* s
    cdef bint placed = False
    cdef int code
    error[0] = stand_by(log, o)
    if error[0]:
        output_discard(o)
        return told(log, error[0])
    s = output_segment(o, log.dir)
    code = LOG_NO_MEMORY if s == NULL else replace(log, old, sizes, n, s, now_ms, &placed)
    if not placed:
        if s != NULL:
            segment_unref(s)
        output_discard(o)
        return code
    if code == LOG_OK:
        error[0] = directory_sync(log.dir)
        if error[0]:
            code = told(log, error[0])
    return code
