"""Sparse indexes of a segment (see index.pxd).

A page of a mapped file that cannot be read, or that another process has cut off, raises SIGBUS.
Every access to a mapping is guarded: such a page becomes one of zeros. What follows is as with rot:
the index does not lead to the batch that it names, and is rebuilt from the .log.
"""
from libc.errno cimport EOPNOTSUPP, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset, strlen

from kbroker.ext.debug cimport OBJECT_MAPPING, object_born, object_died
from kbroker.ext.endian cimport load_i32, load_i64, store_be32, store_be64
from kbroker.ext.mapping_guard cimport guard_begin, guard_end, guard_faults, guard_prepare
from kbroker.ext.posix cimport (
    EIO,
    ENOENT,
    ENOSPC,
    MAP_FAILED,
    MAP_SHARED,
    O_CLOEXEC,
    O_CREAT,
    O_RDONLY,
    O_RDWR,
    PROT_READ,
    PROT_WRITE,
    close,
    fallocate,
    fstat,
    ftruncate,
    mmap,
    munmap,
    open,
    pwrite,
    snprintf,
    ssize_t,
    stat_t,
)
from kbroker.ext.syncs cimport data_sync

cdef enum:
    WARM_BYTES = 8192           # the end of an index, which most lookups want: kept in cache
    PATH_BYTES = 4096
    LOG_SUFFIX_BYTES = 4        # ".log"


# ---- files

cdef void index_init(Index* x, const char* log_path, int32_t entry_bytes,
                     int64_t base_offset) noexcept nogil:
    memset(x, 0, sizeof(Index))
    x.log_path = log_path
    x.entry_bytes = entry_bytes
    x.base_offset = base_offset
    x.entries = -1
    set_last(x)


cdef void index_path(const Index* x, const char* more, char* out, size_t room) noexcept nogil:
    cdef const char* suffix = ".index" if x.entry_bytes == OFFSET_ENTRY_BYTES else ".timeindex"
    snprintf(out, room, "%.*s%s%s", <int> (strlen(x.log_path) - LOG_SUFFIX_BYTES), x.log_path,
             suffix, more)


cdef int open_file(const Index* x, int flags) noexcept nogil:
    """File descriptor, or minus errno."""
    cdef char path[PATH_BYTES]
    index_path(x, "", path, PATH_BYTES)
    cdef int fd = open(path, flags | O_CLOEXEC, 0o644)
    return fd if fd >= 0 else -errno


cdef int map_file(Index* x, int fd, int64_t bytes, int protection) noexcept nogil:
    guard_prepare()
    cdef void* map = mmap(NULL, bytes, protection, MAP_SHARED, fd, 0)
    if map == MAP_FAILED:
        return errno
    x.map = <uint8_t*> map
    x.mapped = bytes
    object_born(OBJECT_MAPPING)
    return 0


cdef int index_load(Index* x) noexcept nogil:
    cdef stat_t status
    cdef int64_t count
    cdef int error = 0
    if x.map != NULL or x.entries == 0:
        return 0
    cdef int fd = open_file(x, O_RDONLY)
    if fd == -ENOENT:
        x.entries = 0
        set_last(x)
        return 0
    if fd < 0:
        return -fd
    if fstat(fd, &status) != 0:
        error = errno
    else:
        count = status.st_size // x.entry_bytes
        if x.entries < 0 or x.entries > count:
            x.entries = <int32_t> count
        if x.entries > 0:
            error = map_file(x, fd, <int64_t> x.entries * x.entry_bytes, PROT_READ)
    close(fd)
    if error == 0 and set_last(x):
        index_release(x)
        error = EIO
    return error


cdef void index_release(Index* x) noexcept nogil:
    if x.map != NULL:
        munmap(x.map, x.mapped)
        object_died(OBJECT_MAPPING)
    x.map = NULL
    x.mapped = 0
    x.writable = 0


cdef int cut_file(Index* x, int64_t bytes) noexcept nogil:
    cdef int error = 0
    cdef int fd = open_file(x, O_RDWR)
    if fd == -ENOENT and bytes == 0:
        return 0
    if fd < 0:
        return -fd
    if ftruncate(fd, bytes) != 0:
        error = errno
    close(fd)
    return error


cdef int index_trim(Index* x) noexcept nogil:
    cdef bint longer = x.writable
    index_release(x)
    if not longer:
        return 0
    x.dirty = 1
    return cut_file(x, <int64_t> x.entries * x.entry_bytes)


cdef int index_touch(Index* x) noexcept nogil:
    cdef int fd = open_file(x, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    close(fd)
    return 0


cdef int index_sync(Index* x) noexcept nogil:
    """Mapped pages are pages of the file: fdatasync writes them too."""
    cdef int error
    cdef int fd = open_file(x, O_RDWR)
    if fd == -ENOENT:
        return 0
    if fd < 0:
        return -fd
    error = data_sync(fd)
    close(fd)
    return error


cdef int index_clear(Index* x) noexcept nogil:
    index_release(x)
    x.entries = 0
    x.dirty = 1
    set_last(x)
    return cut_file(x, 0)


cdef int grow(Index* x, int64_t bytes) noexcept nogil:
    """Blocks first, then the mapping: a full disk must be an error here and not a SIGBUS later."""
    cdef uint8_t zeros[INDEX_STEP_BYTES_MIN]
    cdef int64_t at
    cdef ssize_t wrote
    cdef int error = 0
    cdef int fd = open_file(x, O_RDWR | O_CREAT)
    if fd < 0:
        return -fd
    if fallocate(fd, 0, 0, bytes) != 0:
        error = errno
        if error == EOPNOTSUPP:
            error = 0
            memset(zeros, 0, INDEX_STEP_BYTES_MIN)
            at = <int64_t> x.entries * x.entry_bytes
            while at < bytes and error == 0:
                wrote = pwrite(fd, zeros, min(<int64_t> INDEX_STEP_BYTES_MIN, bytes - at), at)
                if wrote > 0:
                    at += wrote         # a write that stops short says why when it is tried again
                else:
                    error = errno if wrote < 0 else ENOSPC
    if error == 0:
        index_release(x)
        error = map_file(x, fd, bytes, PROT_READ | PROT_WRITE)
        x.writable = error == 0
    elif not x.writable:
        ftruncate(fd, <int64_t> x.entries * x.entry_bytes)
    close(fd)
    return error


cdef inline int64_t bytes_max(const Index* x, int64_t max_bytes) noexcept nogil:
    return max_bytes - max_bytes % x.entry_bytes


cdef int index_reserve(Index* x, int64_t max_bytes) noexcept nogil:
    cdef int error
    cdef int64_t wanted
    if x.entries < 0:
        error = index_load(x)
        if error:
            return error
    cdef int64_t needed = <int64_t> (x.entries + 1) * x.entry_bytes
    if x.writable and needed <= x.mapped:
        return 0
    wanted = max(<int64_t> INDEX_STEP_BYTES_MIN, 2 * <int64_t> x.entries * x.entry_bytes)
    wanted = max(needed, min(wanted - wanted % x.entry_bytes, bytes_max(x, max_bytes)))
    return grow(x, wanted)


cdef bint index_full(const Index* x, int64_t max_bytes) noexcept nogil:
    cdef int64_t entries_max = bytes_max(x, max_bytes) // x.entry_bytes
    if x.entry_bytes == TIME_ENTRY_BYTES:
        entries_max -= 1
    return x.entries >= entries_max


# ---- entries

cdef int64_t index_entry_offset(const Index* x, int32_t n) noexcept nogil:
    cdef const uint8_t* at = x.map + <int64_t> n * x.entry_bytes
    cdef int64_t value
    guard_begin(x.map, x.mapped)
    value = load_i32(at if x.entry_bytes == OFFSET_ENTRY_BYTES else at + 8)
    guard_end()
    return x.base_offset + value


cdef int64_t index_entry_position(const Index* x, int32_t n) noexcept nogil:
    cdef int64_t value
    guard_begin(x.map, x.mapped)
    value = load_i32(x.map + <int64_t> n * OFFSET_ENTRY_BYTES + 4)
    guard_end()
    return value


cdef int64_t index_entry_timestamp(const Index* x, int32_t n) noexcept nogil:
    cdef int64_t value
    guard_begin(x.map, x.mapped)
    value = load_i64(x.map + <int64_t> n * TIME_ENTRY_BYTES)
    guard_end()
    return value


cdef bint set_last(Index* x) noexcept nogil:
    """Read the last entry. True: it cannot be read."""
    cdef int64_t before = guard_faults()
    x.last_offset = x.base_offset
    x.last_timestamp = -1
    if x.entries > 0 and x.map != NULL:
        x.last_offset = index_entry_offset(x, x.entries - 1)
        if x.entry_bytes == TIME_ENTRY_BYTES:
            x.last_timestamp = index_entry_timestamp(x, x.entries - 1)
    return guard_faults() != before


cdef void offset_index_append(Index* x, int64_t offset, int64_t position) noexcept nogil:
    if x.entries > 0 and offset <= x.last_offset:
        return
    cdef uint8_t* at = x.map + <int64_t> x.entries * OFFSET_ENTRY_BYTES
    guard_begin(x.map, x.mapped)
    store_be32(at, <uint32_t> (offset - x.base_offset))
    store_be32(at + 4, <uint32_t> position)
    guard_end()
    x.entries += 1
    x.last_offset = offset
    x.dirty = 1


cdef void time_index_append(Index* x, int64_t timestamp, int64_t offset) noexcept nogil:
    if timestamp <= x.last_timestamp or offset < x.last_offset:
        return
    cdef uint8_t* at = x.map + <int64_t> x.entries * TIME_ENTRY_BYTES
    guard_begin(x.map, x.mapped)
    store_be64(at, <uint64_t> timestamp)
    store_be32(at + 8, <uint32_t> (offset - x.base_offset))
    guard_end()
    x.entries += 1
    x.last_timestamp = timestamp
    x.last_offset = offset
    x.dirty = 1


cdef int load_or_clear(Index* x) noexcept nogil:
    """Load it; one that cannot be read has no entries from now on."""
    cdef int error = index_load(x)
    return index_clear(x) if error == EIO else error


cdef int index_truncate(Index* x, int64_t offset) noexcept nogil:
    cdef int error = load_or_clear(x)
    cdef int32_t low = 0
    cdef int32_t high
    cdef int32_t middle
    if error:
        return error
    high = x.entries
    while low < high:
        middle = low + (high - low) // 2
        if index_entry_offset(x, middle) < offset:
            low = middle + 1
        else:
            high = middle
    return keep(x, low)


cdef int keep(Index* x, int32_t entries) noexcept nogil:
    """Cut to the first `entries`; what was behind them is zero or gone."""
    if entries >= x.entries:
        return 0
    x.entries = entries
    x.dirty = 1
    if x.map != NULL:
        set_last(x)
    cdef int64_t bytes = <int64_t> entries * x.entry_bytes
    index_release(x)
    return cut_file(x, bytes)


# ---- sanity

cdef bint in_bounds(const Index* x, int32_t n, int64_t log_bytes) noexcept nogil:
    """An offset index has no entry for the first batch of a segment."""
    if index_entry_offset(x, n) < x.base_offset:
        return 0
    if x.entry_bytes == OFFSET_ENTRY_BYTES:
        return 0 < index_entry_position(x, n) < log_bytes
    return index_entry_timestamp(x, n) >= 0


cdef bint follows(const Index* x, int32_t n, int32_t before) noexcept nogil:
    if x.entry_bytes == OFFSET_ENTRY_BYTES:
        return index_entry_offset(x, n) > index_entry_offset(x, before) \
            and index_entry_position(x, n) > index_entry_position(x, before)
    return index_entry_offset(x, n) >= index_entry_offset(x, before) \
        and index_entry_timestamp(x, n) > index_entry_timestamp(x, before)


cdef bint index_sane(Index* x, int64_t log_bytes) noexcept nogil:
    cdef stat_t status
    cdef int fd
    cdef int failed
    if x.entries < 0:
        fd = open_file(x, O_RDONLY)
        if fd < 0:
            return 0
        failed = fstat(fd, &status)
        close(fd)
        if failed or status.st_size % x.entry_bytes != 0:
            return 0
    if index_load(x) != 0:
        return 0
    return x.entries == 0 or (in_bounds(x, 0, log_bytes) and in_bounds(x, x.entries - 1, log_bytes)
                              and (x.entries == 1 or follows(x, x.entries - 1, 0)))


cdef int index_keep_valid(Index* x, int64_t log_bytes) noexcept nogil:
    cdef int32_t n = 0
    cdef int32_t had
    cdef int error = load_or_clear(x)
    if error:
        return error
    had = x.entries
    while n < x.entries and in_bounds(x, n, log_bytes) and (n == 0 or follows(x, n, n - 1)):
        n += 1
    error = keep(x, n)
    if error == 0 and n == had:
        # The file may still hold part of an entry.
        index_release(x)
        error = cut_file(x, <int64_t> n * x.entry_bytes)
    return error


# ---- lookups

cdef int32_t floor_entry(const Index* x, int64_t key, bint by_time) noexcept nogil:
    """Number of the greatest entry with a key at or below; -1 when all are above.

    Most lookups want the end of the log: the search begins with the last 8 KiB, so that the rest
    of the file is not touched for them.
    """
    cdef int32_t low = 0
    cdef int32_t high = x.entries - 1
    cdef int32_t middle = max(0, high - WARM_BYTES // x.entry_bytes)
    cdef int64_t found
    if high < 0:
        return -1
    while low <= high:
        found = index_entry_timestamp(x, middle) if by_time else index_entry_offset(x, middle)
        if found <= key:
            low = middle + 1
        else:
            high = middle - 1
        middle = low + (high - low) // 2
    return high


cdef int32_t offset_index_lookup(Index* x, int64_t offset, int64_t* entry_offset,
                                 int64_t* position) noexcept nogil:
    cdef int32_t n = -1
    cdef int error = index_load(x) if x.entries != 0 else 0
    if error == EIO:                        # an entry that leads nowhere: it is rebuilt
        entry_offset[0] = x.base_offset
        position[0] = -1
        return 0
    if x.entries != 0 and error == 0:
        n = floor_entry(x, offset, False)
    entry_offset[0] = index_entry_offset(x, n) if n >= 0 else x.base_offset
    position[0] = index_entry_position(x, n) if n >= 0 else 0
    return n


cdef int32_t time_index_lookup(Index* x, int64_t timestamp, int64_t* offset) noexcept nogil:
    cdef int32_t n = -1
    if x.entries != 0 and index_load(x) == 0:
        n = floor_entry(x, timestamp, True)
    offset[0] = index_entry_offset(x, n) if n >= 0 else x.base_offset
    return n


cdef int64_t offset_index_beyond(Index* x, int64_t position) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high
    cdef int32_t middle
    if x.entries == 0 or index_load(x) != 0:
        return -1
    high = x.entries
    while low < high:
        middle = low + (high - low) // 2
        if index_entry_position(x, middle) < position:
            low = middle + 1
        else:
            high = middle
    return index_entry_offset(x, low) if low < x.entries else -1
