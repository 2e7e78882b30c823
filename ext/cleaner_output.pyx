"""The segment that a cleaning writes (see cleaner_output.pxd)."""
from libc.errno cimport EINTR, ENAMETOOLONG, errno
from libc.stdint cimport INT32_MAX, uint32_t, uint64_t

from kbroker.ext.atomics cimport atomic_store_i64
from kbroker.ext.compression_buffer cimport CODEC_OK, buffer_free, buffer_put, buffer_reserve
from kbroker.ext.debug cimport OBJECT_FILE, object_born
from kbroker.ext.endian cimport store_be16, store_be32, store_be64
from kbroker.ext.index cimport OFFSET_ENTRY_BYTES, TIME_ENTRY_BYTES
from kbroker.ext.log_state cimport LOG_OK, log_disk_error, log_index_limits, log_usable
from kbroker.ext.open_files cimport files_count
from kbroker.ext.posix cimport (
    EFBIG,
    ENOMEM,
    ENOSPC,
    O_CLOEXEC,
    O_CREAT,
    O_RDWR,
    O_TRUNC,
    UTIME_OMIT,
    close,
    fdatasync,
    futimens,
    open,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pwrite,
    rename,
    snprintf,
    stat,
    stat_t,
    timespec_t,
    unlink,
)
from kbroker.ext.segment cimport segment_new
from kbroker.ext.txn_index cimport TXN_ENTRY_BYTES

cdef enum:
    WRITE_BYTES = 1 << 18       # gathered before they are written
    FILES = 4
    AGAINST_FULL = 1            # slots of the time index kept for the last entry

cdef const char* FILE_SUFFIXES[FILES]
FILE_SUFFIXES[:] = [".log", ".index", ".timeindex", ".txnindex"]


cdef bint path_of(const Output* o, const char* kind, const char* suffix,
                  char* out) noexcept nogil:
    return snprintf(out, OUTPUT_PATH_BYTES, "%s%s%s", o.stem, kind, suffix) < OUTPUT_PATH_BYTES


cdef int create(const Output* o, const char* kind) noexcept nogil:
    """File descriptor, or minus errno."""
    cdef char path[OUTPUT_PATH_BYTES]
    if not path_of(o, kind, ".cleaned", path):
        return -ENAMETOOLONG
    cdef int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    return fd if fd >= 0 else -errno


cdef int output_open(Output* o, Log* log, int64_t base_offset) noexcept nogil:
    """Under the lock: once the log is closed its folder may be another's."""
    o.log = log
    o.base_offset = base_offset
    o.size = 0
    o.with_aborted = 0
    o.bytes_since_index = 0
    o.largest_timestamp = -1
    o.offset_of_largest_timestamp = base_offset
    o.first_timestamp = -1
    o.last_indexed_timestamp = -1
    o.pending.n = o.offsets.n = o.times.n = o.aborted.n = 0
    snprintf(o.stem, OUTPUT_PATH_BYTES, "%s/%020lld", log.dir, <long long> base_offset)
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if code == LOG_OK:
        log_index_limits(log, &o.limits)
        o.fd = create(o, ".log")
        if o.fd < 0:
            code = log_disk_error(log, -o.fd)
            o.fd = -1
    pthread_mutex_unlock(&log.lock)
    return code


# ---- writing

cdef int write_all(int fd, const uint8_t* p, int64_t n, int64_t at) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t wrote
    while done < n:
        wrote = pwrite(fd, p + done, n - done, at + done)
        if wrote > 0:
            done += wrote
        elif wrote == 0:
            return ENOSPC
        elif errno != EINTR:
            return errno
    return 0


cdef int write_pending(Output* o) noexcept nogil:
    cdef int error = write_all(o.fd, o.pending.p, o.pending.n, o.size - <int64_t> o.pending.n)
    o.pending.n = 0
    atomic_store_i64(&o.log.cleaned_bytes, o.size)
    return error


cdef int put_time(Output* o) noexcept nogil:
    cdef uint8_t entry[TIME_ENTRY_BYTES]
    if o.largest_timestamp <= o.last_indexed_timestamp:
        return 0
    store_be64(entry, <uint64_t> o.largest_timestamp)
    store_be32(entry + 8, <uint32_t> (o.offset_of_largest_timestamp - o.base_offset))
    o.last_indexed_timestamp = o.largest_timestamp
    return 0 if buffer_put(&o.times, entry, TIME_ENTRY_BYTES) == CODEC_OK else ENOMEM


cdef int put_entries(Output* o, int64_t last_offset) noexcept nogil:
    """For the batch that begins at the end. A full index gets no more entries: it is sparser then,
    and as true."""
    cdef uint8_t entry[OFFSET_ENTRY_BYTES]
    cdef int64_t room = o.limits.max_bytes
    o.bytes_since_index = 0
    if <int64_t> o.times.n + (1 + AGAINST_FULL) * TIME_ENTRY_BYTES <= room:
        if put_time(o) != 0:
            return ENOMEM
    if <int64_t> o.offsets.n + OFFSET_ENTRY_BYTES > room:
        return 0
    store_be32(entry, <uint32_t> (last_offset - o.base_offset))
    store_be32(entry + 4, <uint32_t> o.size)
    return 0 if buffer_put(&o.offsets, entry, OFFSET_ENTRY_BYTES) == CODEC_OK else ENOMEM


cdef int output_append(Output* o, const uint8_t* p, int64_t n,
                       const BatchInfo* info) noexcept nogil:
    cdef int64_t last_offset = info.base_offset + info.last_offset_delta
    cdef int error = 0
    if o.size + n > INT32_MAX or last_offset - o.base_offset > INT32_MAX:
        return EFBIG
    if info.max_timestamp > o.largest_timestamp:
        o.largest_timestamp = info.max_timestamp
        o.offset_of_largest_timestamp = last_offset
    if o.size == 0:
        o.first_timestamp = info.max_timestamp
    if o.bytes_since_index > o.limits.interval_bytes:
        error = put_entries(o, last_offset)
    o.bytes_since_index += n
    if error == 0 and buffer_reserve(&o.pending, n) != CODEC_OK:
        error = ENOMEM
    if error:
        return error
    buffer_put(&o.pending, p, n)
    o.size += n
    return write_pending(o) if o.pending.n >= WRITE_BYTES else 0


cdef int output_aborted(Output* o, const TxnEntry* entry) noexcept nogil:
    cdef uint8_t bytes[TXN_ENTRY_BYTES]
    store_be16(bytes, 0)
    store_be64(bytes + 2, <uint64_t> entry.producer_id)
    store_be64(bytes + 10, <uint64_t> entry.first_offset)
    store_be64(bytes + 18, <uint64_t> entry.last_offset)
    store_be64(bytes + 26, <uint64_t> entry.last_stable_offset)
    return 0 if buffer_put(&o.aborted, bytes, TXN_ENTRY_BYTES) == CODEC_OK else ENOMEM


# ---- the end

cdef int write_index(const Output* o, const char* kind, const Buffer* content) noexcept nogil:
    cdef int error
    cdef int fd = create(o, kind)
    if fd < 0:
        return -fd
    error = write_all(fd, content.p, content.n, 0)
    if error == 0 and fdatasync(fd) != 0:
        error = errno
    close(fd)
    return error


cdef void copy_time(int fd, const Segment* like) noexcept nogil:
    """Best effort: retention goes by it only where no record has a timestamp."""
    cdef stat_t status
    cdef timespec_t times[2]
    if stat(like.path, &status) != 0:
        return
    times[0].tv_sec = 0
    times[0].tv_nsec = UTIME_OMIT
    times[1] = status.st_mtim
    futimens(fd, times)


cdef int output_finish(Output* o, const Segment* like) noexcept nogil:
    cdef int error = write_pending(o)
    error = error or put_time(o)
    error = error or write_index(o, ".index", &o.offsets)
    error = error or write_index(o, ".timeindex", &o.times)
    if error == 0 and o.aborted.n > 0:
        o.with_aborted = 1
        error = write_index(o, ".txnindex", &o.aborted)
    if error:
        return error
    copy_time(o.fd, like)
    return 0 if fdatasync(o.fd) == 0 else errno


cdef int output_rename(const Output* o, const char* old, const char* new) noexcept nogil:
    cdef char from_[OUTPUT_PATH_BYTES]
    cdef char to[OUTPUT_PATH_BYTES]
    cdef int i
    for i in range(FILES if o.with_aborted else FILES - 1):
        if not path_of(o, FILE_SUFFIXES[i], old, from_):
            return ENAMETOOLONG
        if not path_of(o, FILE_SUFFIXES[i], new, to):
            return ENAMETOOLONG
        if rename(from_, to) != 0:
            return errno
    return 0


cdef Segment* output_segment(Output* o, const char* dir) noexcept nogil:
    cdef Segment* s = segment_new(dir, o.base_offset)
    if s == NULL:
        return NULL
    s.fd = o.fd
    o.fd = -1
    files_count(1)
    object_born(OBJECT_FILE)
    s.size = o.size
    s.sealed = 1
    s.has_aborted = o.with_aborted
    s.largest_timestamp = o.largest_timestamp
    s.offset_of_largest_timestamp = o.offset_of_largest_timestamp
    s.first_timestamp = o.first_timestamp
    return s


cdef void drop_file(const Output* o, const char* kind, const char* suffix) noexcept nogil:
    cdef char path[OUTPUT_PATH_BYTES]
    if path_of(o, kind, suffix, path):
        unlink(path)


cdef void output_discard(Output* o) noexcept nogil:
    """The .log goes last, as .cleaned: as long as it is there, a start takes what is left of a
    .swap set for incomplete."""
    cdef char swap[OUTPUT_PATH_BYTES]
    cdef char cleaned[OUTPUT_PATH_BYTES]
    cdef int i
    if o.fd >= 0:
        close(o.fd)
    o.fd = -1
    if path_of(o, ".log", ".swap", swap) and path_of(o, ".log", ".cleaned", cleaned):
        rename(swap, cleaned)
    for i in range(FILES - 1, -1, -1):
        drop_file(o, FILE_SUFFIXES[i], ".swap")
        drop_file(o, FILE_SUFFIXES[i], ".cleaned")
    atomic_store_i64(&o.log.cleaned_bytes, 0)


cdef void output_free(Output* o) noexcept nogil:
    buffer_free(&o.pending)
    buffer_free(&o.offsets)
    buffer_free(&o.times)
    buffer_free(&o.aborted)
