"""One segment of a log (see segment.pxd)."""
from libc.errno cimport EINTR, ENAMETOOLONG, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport strlen

from kbroker.ext.atomics cimport (
    atomic_add_i32,
    atomic_load_i32,
    atomic_load_relaxed_i64,
    atomic_store_i32,
    atomic_store_i64,
)
from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.debug cimport OBJECT_FILE, OBJECT_SEGMENT, object_born, object_died
from kbroker.ext.file_pins cimport file_pin, file_unpin
from kbroker.ext.index cimport (
    OFFSET_ENTRY_BYTES,
    TIME_ENTRY_BYTES,
    index_clear,
    index_init,
    index_load,
    index_release,
    index_reserve,
    index_sync,
    index_touch,
    index_trim,
    offset_index_append,
    offset_index_lookup,
    time_index_append,
)
from kbroker.ext.open_files cimport files_count
from kbroker.ext.posix cimport (
    EDQUOT, ENOENT, ENOMEM, ENOSPC, FALLOC_FL_KEEP_SIZE, O_CLOEXEC, O_CREAT, O_RDWR, close,
    fallocate, ftruncate, open, pwrite, rename, snprintf, stat, stat_t, unlink,
)
from kbroker.ext.syncs cimport data_sync
from kbroker.ext.walk cimport (
    WALK_BATCH,
    WALK_END,
    WALK_ERROR,
    WALK_TORN,
    Walk,
    walk_free,
    walk_init,
    walk_next,
)

cdef enum:
    PREPARE_FROM_BYTES = 65536          # smaller segments get no blocks ahead
    PREPARE_MAX_BYTES = 64 << 20
    LOG_SUFFIX_BYTES = 4                # ".log"
    SUFFIX_COUNT = 5
    SEGMENT_FILES = 4                   # the snapshot, the last one, may outlive the segment

cdef const char* SUFFIXES[SUFFIX_COUNT]
SUFFIXES[:] = [".log", ".index", ".timeindex", ".txnindex", ".snapshot"]


# ---- life

cdef Segment* segment_new(const char* dir, int64_t base_offset) noexcept nogil:
    cdef Segment* s = <Segment*> calloc(1, sizeof(Segment))
    cdef size_t room = strlen(dir) + 32
    if s == NULL:
        return NULL
    s.path = <char*> malloc(room)
    if s.path == NULL:
        free(s)
        return NULL
    snprintf(s.path, room, "%s/%020lld.log", dir, <long long> base_offset)
    s.base_offset = base_offset
    s.next_offset = base_offset
    s.fd = -1
    s.refs = 1
    s.has_files = 1
    s.largest_timestamp = -1
    s.offset_of_largest_timestamp = base_offset
    s.first_timestamp = -1
    index_init(&s.offsets, s.path, OFFSET_ENTRY_BYTES, base_offset)
    index_init(&s.times, s.path, TIME_ENTRY_BYTES, base_offset)
    object_born(OBJECT_SEGMENT)
    return s


cdef void segment_ref(Segment* s) noexcept nogil:
    atomic_add_i32(&s.refs, 1)


cdef void segment_unref(Segment* s) noexcept nogil:
    if atomic_add_i32(&s.refs, -1) > 0:
        return
    index_release(&s.offsets)
    index_release(&s.times)
    close_file(s)
    file_unpin(s.pin)
    free(s.path)
    free(s)
    object_died(OBJECT_SEGMENT)


cdef void close_file(Segment* s) noexcept nogil:
    if s.fd >= 0:
        close(s.fd)
        files_count(-1)
        object_died(OBJECT_FILE)
    s.fd = -1


cdef int segment_open(Segment* s, bint create) noexcept nogil:
    if s.fd >= 0:
        return 0
    s.fd = open(s.path, O_RDWR | O_CLOEXEC | (O_CREAT if create else 0), 0o644)
    if s.fd < 0:
        return errno
    file_unpin(s.pin)
    s.pin = NULL
    files_count(1)
    object_born(OBJECT_FILE)
    return 0


cdef int segment_create_files(Segment* s) noexcept nogil:
    """The indexes exist from the start, because Apache Kafka rebuilds an index that is missing."""
    cdef int error = segment_open(s, True) or index_touch(&s.offsets) or index_touch(&s.times)
    s.has_files = error == 0
    return error


cdef void segment_path(const Segment* s, const char* suffix, char* out) noexcept nogil:
    snprintf(out, SEGMENT_PATH_BYTES, "%.*s%s", <int> (strlen(s.path) - LOG_SUFFIX_BYTES), s.path,
             suffix)


# ---- writing

cdef int64_t prepare_max = PREPARE_MAX_BYTES        # atomic


cdef void segment_limit_preparation(int64_t bytes) noexcept nogil:
    cdef int64_t most = max(bytes, <int64_t> PREPARE_FROM_BYTES)
    atomic_store_i64(&prepare_max, min(most, <int64_t> PREPARE_MAX_BYTES))


cdef int prepare(Segment* s, int64_t end, int64_t segment_bytes) noexcept nogil:
    """Blocks up to `end` and a step beyond; when the disk has no room for the step, without it.

    A file system without fallocate, or any error but a full disk, only costs the preparation.
    """
    cdef int64_t goal
    cdef int64_t most = atomic_load_relaxed_i64(&prepare_max)
    cdef int64_t step = min(max(s.step, <int64_t> PREPARE_FROM_BYTES), most)
    while True:
        goal = max(end, min(end + step, segment_bytes))
        if fallocate(s.fd, FALLOC_FL_KEEP_SIZE, s.size, goal - s.size) == 0:
            s.allocated = goal
            s.step = min(2 * step, most)
            return 0
        if errno == EINTR:
            continue
        if errno != ENOSPC and errno != EDQUOT:
            s.allocated = INT64_MAX
            return 0
        if goal == end:
            return errno
        step = 0 if step < PREPARE_FROM_BYTES else step // 4
        s.step = 0


cdef int segment_append(Segment* s, const uint8_t* p, int64_t n,
                        int64_t segment_bytes) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t wrote
    cdef int error = 0
    cdef int64_t end = s.size + n
    if end > s.allocated and (end > PREPARE_FROM_BYTES or s.step > 0):
        error = prepare(s, end, segment_bytes)
        if error:
            return error
    while done < n:
        wrote = pwrite(s.fd, p + done, n - done, s.size + done)
        if wrote > 0:
            done += wrote
        elif wrote == 0 or errno != EINTR:
            error = ENOSPC if wrote == 0 else errno
            break
    s.dirty = 1
    if error:
        ftruncate(s.fd, s.size)
        s.allocated = 0
    return error


cdef int segment_reserve_entry(Segment* s, const IndexLimits* limits) noexcept nogil:
    cdef int error
    if s.bytes_since_index <= limits.interval_bytes:
        return 0
    error = index_reserve(&s.offsets, limits.max_bytes)
    if error == 0:
        error = index_reserve(&s.times, limits.max_bytes)
    return error


cdef void segment_note(Segment* s, int64_t position, const BatchInfo* info, int64_t last_offset,
                       const IndexLimits* limits) noexcept nogil:
    if info.max_timestamp > s.largest_timestamp:
        s.largest_timestamp = info.max_timestamp
        s.offset_of_largest_timestamp = last_offset
    if position == 0:
        s.first_timestamp = info.max_timestamp
    if s.bytes_since_index > limits.interval_bytes:
        offset_index_append(&s.offsets, last_offset, position)
        time_index_append(&s.times, s.largest_timestamp, s.offset_of_largest_timestamp)
        s.bytes_since_index = 0
    s.bytes_since_index += info.length
    s.next_offset = last_offset + 1


cdef int segment_seal(Segment* s, const IndexLimits* limits) noexcept nogil:
    cdef int error = segment_load_times(s)
    cdef int failed
    if error == 0 and s.largest_timestamp >= 0:
        error = index_load(&s.times)
        if error == 0 and s.largest_timestamp > s.times.last_timestamp:
            error = index_reserve(&s.times, limits.max_bytes)
            if error == 0:
                time_index_append(&s.times, s.largest_timestamp, s.offset_of_largest_timestamp)
    failed = index_touch(&s.offsets) or index_trim(&s.offsets)
    error = error or failed
    failed = index_touch(&s.times) or index_trim(&s.times)
    error = error or failed
    error = error or trim(s)
    s.sealed = error == 0
    return error


cdef int trim(Segment* s) noexcept nogil:
    """Give back blocks beyond the end. ftruncate to the size that a file has frees them."""
    if s.allocated <= s.size or s.allocated == INT64_MAX:
        return 0
    cdef int error = segment_open(s, False)
    if error:
        return error
    if ftruncate(s.fd, s.size) != 0:
        return errno
    s.allocated = 0
    s.step = 0
    return 0


cdef int segment_cut(Segment* s, int64_t position) noexcept nogil:
    cdef int error = segment_open(s, False)
    if error:
        return error
    if ftruncate(s.fd, position) != 0:
        return errno
    atomic_store_i64(&s.size, position)
    s.allocated = 0
    s.dirty = 1
    return 0


cdef int segment_sync(Segment* s, int fd, bint indexes) noexcept nogil:
    """One that was retired meanwhile has another name: nobody needs it any more."""
    cdef int opened = -1
    cdef int error
    if fd < 0:
        opened = open(s.path, O_RDWR | O_CLOEXEC, 0o644)
        if opened < 0:
            error = errno
            return 0 if error == ENOENT and atomic_load_i32(&s.deleted) else error
    error = data_sync(fd if fd >= 0 else opened)
    if opened >= 0:
        close(opened)
    if indexes and error == 0:
        error = index_sync(&s.offsets) or index_sync(&s.times)
    return error


# ---- reading

cdef int segment_load_times(Segment* s) noexcept nogil:
    """From the last entry of the time index, which holds the largest when the segment is sealed."""
    if s.largest_timestamp != TIMES_UNKNOWN:
        return 0
    cdef bint mapped = s.times.map != NULL
    cdef int error = index_load(&s.times)
    if error:
        return error
    s.largest_timestamp = s.times.last_timestamp
    s.offset_of_largest_timestamp = s.times.last_offset
    if not mapped:
        index_release(&s.times)
    return 0


cdef int64_t segment_largest(Segment* s) noexcept nogil:
    cdef stat_t status
    segment_load_times(s)
    if s.largest_timestamp >= 0:
        return s.largest_timestamp
    if s.size == 0 or stat(s.path, &status) != 0:
        return -1
    return <int64_t> status.st_mtim.tv_sec * 1000 + status.st_mtim.tv_nsec // 1000000


cdef int segment_load_first(Segment* s) noexcept nogil:
    """The file is left as it was, open or not: no owner of open files knows of this."""
    cdef Walk w
    cdef bint was_open = s.fd >= 0
    cdef int error = 0 if s.first_timestamp != TIMES_UNKNOWN else segment_open(s, False)
    if error or s.first_timestamp != TIMES_UNKNOWN:
        return error
    error = ENOMEM if walk_init(&w, s.fd, 0, s.size, 0) != 0 else 0
    if error == 0 and walk_next(&w) == WALK_BATCH:
        s.first_timestamp = w.info.max_timestamp
    if error == 0:
        walk_free(&w)
    if not was_open:
        close_file(s)
    return error


cdef void segment_hint(Segment* s, int64_t offset, Hint* out) noexcept nogil:
    cdef int32_t n = offset_index_lookup(&s.offsets, offset, &out.entry_offset, &out.position)
    out.end = s.size
    if n < 0:
        out.entry_offset = -1
    elif out.entry_offset < s.base_offset or not 0 < out.position < s.size:
        out.entry_offset = s.base_offset        # rot: nothing begins there, which a find will tell
        out.position = -1


cdef int64_t segment_begin(Segment* s, const Hint* hint) noexcept nogil:
    cdef Found found
    if hint.entry_offset < 0 or segment_find(s, hint, hint.entry_offset, &found) == FIND_BATCH:
        return hint.position
    return 0


cdef int segment_find(Segment* s, const Hint* hint, int64_t offset, Found* out) noexcept nogil:
    cdef Walk w
    cdef int code
    cdef int64_t last_offset
    cdef bint first = True
    if hint.entry_offset >= 0 and not 0 <= hint.position < hint.end:
        return FIND_MISLED              # or all that lies before would be passed over
    if walk_init(&w, s.fd, hint.position, hint.end, 0) != 0:
        return FIND_ERROR
    while True:
        code = walk_next(&w)
        if code != WALK_BATCH:
            break
        last_offset = w.info.base_offset + w.info.last_offset_delta
        if first and hint.entry_offset >= 0 and last_offset != hint.entry_offset:
            code = WALK_TORN
            break
        first = False
        if last_offset >= offset:
            out.position = w.at
            out.length = w.info.length
            out.base_offset = w.info.base_offset
            out.last_offset = last_offset
            out.max_timestamp = w.info.max_timestamp
            out.leader_epoch = w.info.leader_epoch
            break
    walk_free(&w)
    if code == WALK_BATCH:
        return FIND_BATCH
    if code == WALK_ERROR:
        return FIND_ERROR
    if code == WALK_END:
        return FIND_NONE
    return FIND_MISLED if first and hint.entry_offset >= 0 else FIND_BROKEN


cdef int segment_rebuild_indexes(Segment* s, const IndexLimits* limits) noexcept nogil:
    cdef Walk w
    cdef int code
    cdef int error = segment_open(s, False)
    error = error or index_clear(&s.offsets)
    error = error or index_clear(&s.times)
    if error:
        return error
    s.largest_timestamp = -1
    s.bytes_since_index = 0
    if walk_init(&w, s.fd, 0, s.size, 0) != 0:
        return ENOMEM
    code = walk_next(&w)
    while code == WALK_BATCH and error == 0:
        error = segment_reserve_entry(s, limits)
        if error == 0:
            segment_note(s, w.at, &w.info, w.info.base_offset + w.info.last_offset_delta, limits)
            code = walk_next(&w)
    error = error or (w.error if code == WALK_ERROR else 0)
    walk_free(&w)
    if error == 0 and s.sealed:
        error = segment_seal(s, limits)
    return error


# ---- letting go

cdef int segment_idle(Segment* s) noexcept nogil:
    """A reader holds a reference and uses the descriptor: then it stays."""
    if atomic_load_i32(&s.refs) != 1:
        return 0
    if s.fd < 0 and s.offsets.map == NULL and s.times.map == NULL:
        return 0
    trim(s)
    index_trim(&s.offsets)
    index_trim(&s.times)
    close_file(s)
    return 1


cdef int set_aside(const char* path) noexcept nogil:
    """Rename to .deleted. On a full disk the folder may have no room for the longer name: then the
    file goes at once, as it is the disk that asks for it."""
    cdef char longer[SEGMENT_PATH_BYTES]
    if snprintf(longer, SEGMENT_PATH_BYTES, "%s.deleted", path) >= SEGMENT_PATH_BYTES:
        return ENAMETOOLONG
    if rename(path, longer) == 0 or errno == ENOENT:
        return 0
    if (errno == ENOSPC or errno == EDQUOT) and unlink(path) == 0:
        return 0
    return errno


cdef void segment_give_up(Segment* s) noexcept nogil:
    atomic_store_i32(&s.deleted, 1)
    index_release(&s.offsets)
    index_release(&s.times)
    s.offsets.entries = 0
    s.times.entries = 0


cdef int segment_retire(Segment* s, int64_t now_ms, bint snapshot) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int i
    cdef int failed
    cdef int error = 0
    segment_give_up(s)                  # before its name is gone: whoever misses it can tell why
    for i in range(SUFFIX_COUNT if snapshot else SEGMENT_FILES):
        segment_path(s, SUFFIXES[i], path)
        failed = set_aside(path)
        error = error or failed
    s.retired_ms = now_ms
    return error


cdef int segment_place(Segment* s) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef char waiting[SEGMENT_PATH_BYTES]
    cdef int i
    for i in range(SEGMENT_FILES):
        segment_path(s, SUFFIXES[i], path)
        if snprintf(waiting, SEGMENT_PATH_BYTES, "%s.swap", path) >= SEGMENT_PATH_BYTES:
            return ENAMETOOLONG
        if rename(waiting, path) != 0 and errno != ENOENT:
            return errno
    return 0


cdef void segment_close_unused(Segment* s) noexcept nogil:
    if s.fd < 0 or atomic_load_i32(&s.refs) > 2:
        return
    if s.dirty and not s.deleted:
        s.pin = file_pin(s.fd)
        if s.pin == NULL:
            return
    close_file(s)


cdef int segment_unlink(Segment* s) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int i
    cdef int error = 0
    for i in range(SUFFIX_COUNT):
        segment_path(s, SUFFIXES[i], path)
        snprintf(path + strlen(path), 16, ".deleted")
        if unlink(path) != 0 and errno != ENOENT and error == 0:
            error = errno
    return error


cdef void segment_discard(Segment* s) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int i
    for i in range(SEGMENT_FILES):
        segment_path(s, SUFFIXES[i], path)
        unlink(path)        # what stays is found to be empty at the next start
    segment_unref(s)
