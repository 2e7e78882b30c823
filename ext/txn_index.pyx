"""The transaction index of a segment (see txn_index.pxd)."""
from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport realloc

from kbroker.ext.endian cimport load_i16, load_i64, store_be16, store_be64
from kbroker.ext.posix cimport (
    EDQUOT,
    EIO,
    ENOENT,
    ENOMEM,
    ENOSPC,
    FALLOC_FL_KEEP_SIZE,
    O_CLOEXEC,
    O_CREAT,
    O_RDONLY,
    O_RDWR,
    close,
    fallocate,
    fstat,
    ftruncate,
    open,
    pwrite,
    ssize_t,
    stat_t,
    unlink,
)
from kbroker.ext.segment cimport SEGMENT_PATH_BYTES, segment_path
from kbroker.ext.syncs cimport data_sync
from kbroker.ext.walk cimport read_fully

cdef enum:
    VERSION = 0
    ENTRIES_AT_ONCE = 64


cdef int open_index(const Segment* s, int flags) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    segment_path(s, ".txnindex", path)
    cdef int fd = open(path, flags | O_CLOEXEC, 0o644)
    return fd if fd >= 0 else -errno


cdef int txn_index_reserve(Segment* s) noexcept nogil:
    """A file system without fallocate only costs the preparation."""
    cdef stat_t status
    cdef int error = 0
    cdef int fd = open_index(s, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    if fstat(fd, &status) != 0:
        error = errno
    elif fallocate(fd, FALLOC_FL_KEEP_SIZE, status.st_size, TXN_ENTRY_BYTES) != 0 \
            and (errno == ENOSPC or errno == EDQUOT):
        error = errno
    close(fd)
    return error


cdef int txn_index_append(Segment* s, const EndedTxn* ended) noexcept nogil:
    cdef uint8_t entry[TXN_ENTRY_BYTES]
    cdef stat_t status
    cdef int64_t at
    cdef ssize_t wrote
    cdef int error = 0
    cdef int fd = open_index(s, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    store_be16(entry, VERSION)
    store_be64(entry + 2, <uint64_t> ended.producer_id)
    store_be64(entry + 10, <uint64_t> ended.first_offset)
    store_be64(entry + 18, <uint64_t> ended.last_offset)
    store_be64(entry + 26, <uint64_t> ended.last_stable_offset)
    if fstat(fd, &status) != 0:
        error = errno
    else:
        at = status.st_size - status.st_size % TXN_ENTRY_BYTES
        wrote = pwrite(fd, entry, TXN_ENTRY_BYTES, at)
        if wrote != TXN_ENTRY_BYTES:
            error = errno if wrote < 0 else ENOSPC      # of a short write errno says nothing
            ftruncate(fd, at)
    close(fd)
    s.has_aborted = 1
    return error


cdef bint push(AbortedList* out, int64_t producer_id, int64_t first_offset) noexcept nogil:
    cdef int32_t capacity
    cdef void* larger
    if out.count == out.capacity:
        capacity = max(16, 2 * out.capacity)
        larger = realloc(out.items, capacity * sizeof(AbortedTxn))
        if larger == NULL:
            return False
        out.items = <AbortedTxn*> larger
        out.capacity = capacity
    out.items[out.count].producer_id = producer_id
    out.items[out.count].first_offset = first_offset
    out.count += 1
    return True


cdef int txn_index_collect(const Segment* s, int64_t offset, int64_t upper_bound,
                           AbortedList* out, bint* complete) noexcept nogil:
    cdef uint8_t entries[ENTRIES_AT_ONCE * TXN_ENTRY_BYTES]
    cdef const uint8_t* p
    cdef int64_t at = 0
    cdef int64_t got = 0
    cdef int64_t i
    cdef int error = 0
    complete[0] = False
    cdef int fd = open_index(s, O_RDONLY)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    while error == 0 and not complete[0]:
        got = read_fully(fd, entries, ENTRIES_AT_ONCE * TXN_ENTRY_BYTES, at)
        if got < TXN_ENTRY_BYTES:
            error = <int> -got if got < 0 else 0
            break
        for i in range(got // TXN_ENTRY_BYTES):
            p = entries + i * TXN_ENTRY_BYTES
            if load_i16(p) != VERSION:
                error = EIO
                break
            if load_i64(p + 18) >= offset and load_i64(p + 10) < upper_bound:
                if not push(out, load_i64(p + 2), load_i64(p + 10)):
                    error = ENOMEM
                    break
            if load_i64(p + 26) >= upper_bound:
                complete[0] = True
                break
        at += got // TXN_ENTRY_BYTES * TXN_ENTRY_BYTES
    close(fd)
    return error


cdef int txn_index_truncate(Segment* s, int64_t offset) noexcept nogil:
    cdef uint8_t entry[TXN_ENTRY_BYTES]
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int64_t at = 0
    cdef int error = 0
    if offset <= s.base_offset:
        segment_path(s, ".txnindex", path)
        s.has_aborted = 0
        return 0 if unlink(path) == 0 or errno == ENOENT else errno
    cdef int fd = open_index(s, O_RDWR)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    while read_fully(fd, entry, TXN_ENTRY_BYTES, at) == TXN_ENTRY_BYTES:
        if load_i16(entry) != VERSION or load_i64(entry + 18) >= offset:
            break
        at += TXN_ENTRY_BYTES
    if ftruncate(fd, at) != 0:
        error = errno
    close(fd)
    return error


cdef int txn_index_sync(const Segment* s) noexcept nogil:
    cdef int error
    cdef int fd
    if not s.has_aborted:
        return 0
    fd = open_index(s, O_RDWR)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    error = data_sync(fd)
    close(fd)
    return error
