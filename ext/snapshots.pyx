"""Producer snapshots (see snapshots.pxd)."""
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc, realloc

from kbroker.ext.crc32c cimport crc32c
from kbroker.ext.endian cimport load_be32, load_i16, load_i32, load_i64
from kbroker.ext.endian cimport store_be16, store_be32, store_be64
from kbroker.ext.posix cimport (
    ENOENT,
    ENOMEM,
    ENOSPC,
    O_CLOEXEC,
    O_CREAT,
    O_RDONLY,
    O_TRUNC,
    O_WRONLY,
    close,
    fsync,
    open,
    snprintf,
    unlink,
    write,
)
from kbroker.ext.producers cimport (
    NO_PRODUCER_EPOCH,
    PRODUCER_BATCHES,
    Producer,
    ProducerBatch,
    producers_clear,
    producers_expire,
    producers_link_txns,
    producers_take,
)
from kbroker.ext.syncs cimport file_sync
from kbroker.ext.walk cimport read_whole

cdef enum:
    PATH_BYTES = 4096
    VERSION = 1
    CRC_OFFSET = 2
    ENTRIES_OFFSET = 6              # count, then entries: what the CRC covers
    HEADER_BYTES = 10
    ENTRY_BYTES = 46


cdef int snapshots_add(Snapshots* list, int64_t offset) noexcept nogil:
    cdef int32_t capacity
    cdef int32_t i
    cdef void* larger
    if list.count == list.capacity:
        capacity = max(8, 2 * list.capacity)
        larger = realloc(list.offsets, capacity * sizeof(int64_t))
        if larger == NULL:
            return ENOMEM
        list.offsets = <int64_t*> larger
        list.capacity = capacity
    i = list.count
    while i > 0 and list.offsets[i - 1] > offset:
        list.offsets[i] = list.offsets[i - 1]
        i -= 1
    list.offsets[i] = offset
    list.count += 1
    return 0


cdef void snapshots_free(Snapshots* list) noexcept nogil:
    free(list.offsets)
    list.offsets = NULL
    list.count = 0
    list.capacity = 0


cdef void path_of(const char* dir, int64_t offset, char* out) noexcept nogil:
    snprintf(out, PATH_BYTES, "%s/%020lld.snapshot", dir, <long long> offset)


cdef void store_entry(uint8_t* at, const Producer* p) noexcept nogil:
    cdef const ProducerBatch* last = NULL
    if p.count > 0:
        last = &p.batches[(p.first + p.count - 1) % PRODUCER_BATCHES]
    store_be64(at, <uint64_t> p.id)
    store_be16(at + 8, <uint16_t> p.epoch)
    store_be32(at + 10, <uint32_t> (last.last_sequence if last != NULL else -1))
    store_be64(at + 14, <uint64_t> (last.last_offset if last != NULL else -1))
    store_be32(at + 22, <uint32_t> (last.offset_delta if last != NULL else 0))
    store_be64(at + 26, <uint64_t> p.last_timestamp)
    store_be32(at + 34, <uint32_t> p.coordinator_epoch)
    store_be64(at + 38, <uint64_t> p.txn.first_offset)


cdef int write_file(const char* path, const uint8_t* p, int64_t n, bint sync) noexcept nogil:
    cdef int error = 0
    cdef ssize_t wrote
    cdef int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    if fd < 0:
        return errno
    wrote = write(fd, p, n)
    if wrote < 0:
        error = errno
    elif wrote != n:
        error = ENOSPC
    elif sync and fsync(fd) != 0:
        error = errno
    close(fd)
    if error:
        unlink(path)
    return error


cdef int snapshot_write(const char* dir, int64_t offset, const Producers* producers,
                        bint sync) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int32_t room = producers.count if producers != NULL else 0
    cdef int32_t count = 0
    cdef int32_t i
    cdef int64_t n
    cdef int error
    cdef uint8_t* buffer = <uint8_t*> malloc(HEADER_BYTES + <int64_t> room * ENTRY_BYTES)
    if buffer == NULL:
        return ENOMEM
    if producers != NULL:
        for i in range(producers.capacity):
            if producers.slots[i] == NULL or producers.slots[i].epoch == NO_PRODUCER_EPOCH:
                continue
            store_entry(buffer + HEADER_BYTES + <int64_t> count * ENTRY_BYTES, producers.slots[i])
            count += 1
    n = HEADER_BYTES + <int64_t> count * ENTRY_BYTES
    store_be16(buffer, VERSION)
    store_be32(buffer + ENTRIES_OFFSET, count)
    store_be32(buffer + CRC_OFFSET, crc32c(buffer + ENTRIES_OFFSET, n - ENTRIES_OFFSET))
    path_of(dir, offset, path)
    error = write_file(path, buffer, n, sync)
    free(buffer)
    return error


cdef int load_entry(const uint8_t* at, Producers* producers) noexcept nogil:
    cdef Producer* p = producers_take(producers, load_i64(at))
    if p == NULL:
        return ENOMEM
    p.epoch = load_i16(at + 8)
    p.count = 0
    p.first = 0
    if load_i64(at + 14) >= 0:
        p.batches[0].last_sequence = load_i32(at + 10)
        p.batches[0].last_offset = load_i64(at + 14)
        p.batches[0].offset_delta = load_i32(at + 22)
        p.batches[0].timestamp = load_i64(at + 26)
        p.count = 1
    p.last_timestamp = load_i64(at + 26)
    p.coordinator_epoch = load_i32(at + 34)
    p.txn.first_offset = load_i64(at + 38)
    return 0


cdef int load_all(const uint8_t* p, int64_t n, Producers* producers) noexcept nogil:
    cdef int64_t count
    cdef int64_t i
    cdef int error = 0
    if n < HEADER_BYTES or load_i16(p) != VERSION:
        return SNAPSHOT_BROKEN
    if load_be32(p + CRC_OFFSET) != crc32c(p + ENTRIES_OFFSET, n - ENTRIES_OFFSET):
        return SNAPSHOT_BROKEN
    count = load_i32(p + ENTRIES_OFFSET)
    if count < 0 or HEADER_BYTES + count * ENTRY_BYTES > n:
        return SNAPSHOT_BROKEN
    for i in range(count):
        error = load_entry(p + HEADER_BYTES + i * ENTRY_BYTES, producers)
        if error:
            break
    if error == 0 and not producers_link_txns(producers):
        error = ENOMEM
    return error


cdef int snapshot_read(const char* dir, int64_t offset, Producers* producers, int64_t now_ms,
                       int64_t expiration_ms) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef uint8_t* buffer
    cdef int64_t n
    cdef int error
    producers_clear(producers)
    path_of(dir, offset, path)
    error = read_whole(path, INT64_MAX, &buffer, &n)
    if error == 0:
        error = load_all(buffer, n, producers)
    free(buffer)
    if error:
        producers_clear(producers)
    elif expiration_ms >= 0:
        producers_expire(producers, now_ms, expiration_ms)
    return error


cdef int snapshot_unlink(const char* dir, int64_t offset) noexcept nogil:
    cdef char path[PATH_BYTES]
    path_of(dir, offset, path)
    return 0 if unlink(path) == 0 or errno == ENOENT else errno


cdef int snapshot_sync(const char* dir, int64_t offset) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef int error
    path_of(dir, offset, path)
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return 0 if errno == ENOENT else errno
    error = file_sync(fd)
    close(fd)
    return error
