"""The transaction index of a segment (see txn_index.pxd)."""
from libc.errno cimport EILSEQ, errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
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


cdef void store_entry(uint8_t* entry, const EndedTxn* ended) noexcept nogil:
    store_be16(entry, VERSION)
    store_be64(entry + 2, <uint64_t> ended.producer_id)
    store_be64(entry + 10, <uint64_t> ended.first_offset)
    store_be64(entry + 18, <uint64_t> ended.last_offset)
    store_be64(entry + 26, <uint64_t> ended.last_stable_offset)


cdef int append_entries(Segment* s, const uint8_t* entries, int64_t bytes) noexcept nogil:
    cdef stat_t status
    cdef int64_t at
    cdef ssize_t written
    cdef int error = 0
    cdef int fd = open_index(s, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    if fstat(fd, &status) != 0:
        error = errno
    else:
        at = status.st_size - status.st_size % TXN_ENTRY_BYTES
        written = pwrite(fd, entries, bytes, at)
        if written != bytes:
            error = errno if written < 0 else ENOSPC
            ftruncate(fd, at)
    close(fd)
    s.has_aborted = 1
    return error


cdef int txn_index_append(Segment* s, const EndedTxn* ended) noexcept nogil:
    cdef uint8_t entry[TXN_ENTRY_BYTES]
    store_entry(entry, ended)
    return append_entries(s, entry, TXN_ENTRY_BYTES)


cdef int txn_index_add(Segment* s, TxnBuffer* buffer, const EndedTxn* ended) noexcept nogil:
    store_entry(buffer.entries + buffer.count * TXN_ENTRY_BYTES, ended)
    buffer.count += 1
    return txn_index_flush(s, buffer) if buffer.count == TXN_BUFFER_ENTRIES else 0


cdef int txn_index_flush(Segment* s, TxnBuffer* buffer) noexcept nogil:
    cdef int32_t count = buffer.count
    buffer.count = 0
    return append_entries(s, buffer.entries, count * TXN_ENTRY_BYTES) if count > 0 else 0


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


cdef int64_t read_entry(int fd, int64_t n, uint8_t* entry) noexcept nogil:
    """Read entry n. Returns the offset of its marker, or minus errno."""
    cdef int64_t got = read_fully(fd, entry, TXN_ENTRY_BYTES, n * TXN_ENTRY_BYTES)
    if got < 0:
        return got
    if got < TXN_ENTRY_BYTES or load_i16(entry) != VERSION or load_i64(entry + 18) < 0:
        return -EILSEQ
    return load_i64(entry + 18)


cdef int64_t first_entry(int fd, int64_t offset) noexcept nogil:
    """Find the first entry whose marker is at or beyond an offset. Returns its number, the count of
    entries where there is none, or minus errno: EILSEQ where markers do not ascend."""
    cdef uint8_t entry[TXN_ENTRY_BYTES]
    cdef stat_t status
    cdef int64_t low = 0
    cdef int64_t high
    cdef int64_t middle
    cdef int64_t marker
    cdef int64_t below = -1
    cdef int64_t above = INT64_MAX
    if fstat(fd, &status) != 0:
        return -errno
    high = status.st_size // TXN_ENTRY_BYTES
    while low < high:
        middle = low + (high - low) // 2
        marker = read_entry(fd, middle, entry)
        if marker < 0:
            return marker
        if not below < marker < above:
            return -EILSEQ
        if marker < offset:
            low = middle + 1
            below = marker
        else:
            high = middle
            above = marker
    return low


cdef int collect_block(const uint8_t* p, int64_t bytes, int64_t offset, int64_t upper_bound,
                       AbortedList* out, bint* complete) noexcept nogil:
    cdef const uint8_t* end = p + bytes
    while p < end and not complete[0]:
        if load_i16(p) != VERSION:
            return EIO
        if load_i64(p + 18) >= offset and load_i64(p + 10) < upper_bound:
            if not push(out, load_i64(p + 2), load_i64(p + 10)):
                return ENOMEM
        complete[0] = load_i64(p + 26) >= upper_bound
        p += TXN_ENTRY_BYTES
    return 0


cdef int txn_index_collect(const Segment* s, int64_t offset, int64_t upper_bound,
                           AbortedList* out, bint* complete) noexcept nogil:
    cdef uint8_t entries[ENTRIES_AT_ONCE * TXN_ENTRY_BYTES]
    cdef int64_t n
    cdef int64_t got
    cdef int error = 0
    complete[0] = False
    cdef int fd = open_index(s, O_RDONLY)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    n = first_entry(fd, offset)
    if n == -EILSEQ:
        n = 0                           # each entry by itself
    error = <int> -n if n < 0 else 0
    while error == 0 and not complete[0]:
        got = read_fully(fd, entries, ENTRIES_AT_ONCE * TXN_ENTRY_BYTES, n * TXN_ENTRY_BYTES)
        if got < TXN_ENTRY_BYTES:
            error = <int> -got if got < 0 else 0
            break
        got //= TXN_ENTRY_BYTES
        error = collect_block(entries, got * TXN_ENTRY_BYTES, offset, upper_bound, out, complete)
        n += got
    close(fd)
    return error


cdef int txn_index_truncate(Segment* s, int64_t offset) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int64_t n
    cdef int error = 0
    if offset <= s.base_offset:
        segment_path(s, ".txnindex", path)
        s.has_aborted = 0
        return 0 if unlink(path) == 0 or errno == ENOENT else errno
    cdef int fd = open_index(s, O_RDWR)
    if fd < 0:
        return 0 if fd == -ENOENT else -fd
    n = first_entry(fd, offset)
    if n < 0:
        error = <int> -n
    elif ftruncate(fd, n * TXN_ENTRY_BYTES) != 0:
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
