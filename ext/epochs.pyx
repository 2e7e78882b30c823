"""Leader epoch cache and checkpoint (see epochs.pxd)."""
from libc.errno cimport EFBIG, EILSEQ, ENOSPC, errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc, strtoll
from libc.string cimport memset

from kbroker.ext.posix cimport (
    ENOENT,
    ENOMEM,
    O_CLOEXEC,
    O_CREAT,
    O_TRUNC,
    O_WRONLY,
    close,
    fsync,
    openat,
    renameat,
    snprintf,
    write,
)
from kbroker.ext.walk cimport read_whole

cdef enum:
    PATH_BYTES = 4096
    LINE_BYTES_MAX = 36         # int32, space, int64, newline
    FILE_BYTES_MAX = 64 << 20   # a larger file is none of ours

cdef const char* CHECKPOINT = "leader-epoch-checkpoint"
cdef const char* TEMPORARY = "leader-epoch-checkpoint.tmp"


cdef void epochs_init(EpochCache* c) noexcept nogil:
    memset(c, 0, sizeof(EpochCache))


cdef void epochs_free(EpochCache* c) noexcept nogil:
    free(c.entries)
    epochs_init(c)


cdef int push(EpochCache* c, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef int32_t capacity
    cdef void* larger
    if c.count == c.capacity:
        capacity = max(1, 2 * c.capacity)       # most logs have one epoch
        larger = realloc(c.entries, capacity * sizeof(EpochEntry))
        if larger == NULL:
            return ENOMEM
        c.entries = <EpochEntry*> larger
        c.capacity = capacity
    c.entries[c.count].epoch = epoch
    c.entries[c.count].start_offset = start_offset
    c.count += 1
    return 0


cdef int epochs_assign(EpochCache* c, int32_t epoch, int64_t start_offset) noexcept nogil:
    cdef int32_t last = c.count - 1
    if epoch < 0 or start_offset < 0:
        return 0
    if last >= 0 and c.entries[last].epoch == epoch \
            and start_offset >= c.entries[last].start_offset:
        return 0
    while last >= 0 and (c.entries[last].epoch >= epoch
                         or c.entries[last].start_offset >= start_offset):
        last -= 1
    c.count = last + 1
    c.dirty = 1
    return push(c, epoch, start_offset)


cdef int32_t epochs_latest(const EpochCache* c) noexcept nogil:
    return c.entries[c.count - 1].epoch if c.count > 0 else NO_EPOCH


cdef int32_t floor_by_offset(const EpochCache* c, int64_t offset) noexcept nogil:
    cdef int32_t i = c.count - 1
    while i >= 0 and c.entries[i].start_offset > offset:
        i -= 1
    return i


cdef int32_t epochs_at(const EpochCache* c, int64_t offset) noexcept nogil:
    cdef int32_t i = floor_by_offset(c, offset)
    return c.entries[i].epoch if i >= 0 else NO_EPOCH


cdef void epochs_end_offset(const EpochCache* c, int32_t epoch, int64_t leo, int32_t* found,
                            int64_t* end) noexcept nogil:
    cdef int32_t higher = c.count
    found[0] = NO_EPOCH
    end[0] = NO_EPOCH_OFFSET
    if epoch == NO_EPOCH or c.count == 0:
        return
    if epoch == epochs_latest(c):
        found[0] = epoch
        end[0] = leo
        return
    while higher > 0 and c.entries[higher - 1].epoch > epoch:
        higher -= 1
    if higher == c.count:
        return
    found[0] = c.entries[higher - 1].epoch if higher > 0 else epoch
    end[0] = c.entries[higher].start_offset


cdef void epochs_truncate_from_end(EpochCache* c, int64_t end_offset) noexcept nogil:
    while c.count > 0 and c.entries[c.count - 1].start_offset >= end_offset:
        c.count -= 1
        c.dirty = 1


cdef void epochs_truncate_from_start(EpochCache* c, int64_t start_offset) noexcept nogil:
    """The epoch that holds start_offset begins there now; the ones before it are gone."""
    cdef int32_t i
    cdef int32_t first = floor_by_offset(c, start_offset)
    if first < 0 or (first == 0 and c.entries[0].start_offset == start_offset):
        return
    for i in range(c.count - first):
        c.entries[i] = c.entries[first + i]
    c.count -= first
    c.entries[0].start_offset = start_offset
    c.dirty = 1


# ---- file

cdef bint parse(EpochCache* c, const char* text) noexcept nogil:
    """The whole file, NUL-terminated. False when it is not of the format."""
    cdef char* p = <char*> text
    cdef char* q
    cdef long long count
    cdef long long epoch
    cdef long long start
    cdef long long _i
    if p[0] == 0:
        return True
    if strtoll(p, &q, 10) != 0 or q == p:
        return False
    p = q
    count = strtoll(p, &q, 10)
    if q == p:
        return p[0] == 0 or p[0] == c"\n"
    for _i in range(count):
        p = q
        epoch = strtoll(p, &q, 10)
        if q == p:
            return False
        p = q
        start = strtoll(p, &q, 10)
        if q == p or epoch < 0 or start < 0 or epoch > 0x7FFFFFFF:
            return False
        if epochs_assign(c, <int32_t> epoch, start) != 0:
            return False
    return True


cdef int epochs_load(EpochCache* c, const char* dir) noexcept nogil:
    cdef char path[PATH_BYTES]
    cdef uint8_t* text
    cdef int64_t n
    cdef int error
    c.count = 0
    snprintf(path, PATH_BYTES, "%s/%s", dir, CHECKPOINT)
    error = read_whole(path, FILE_BYTES_MAX, &text, &n)
    if error == ENOENT:
        return 0
    if error == 0 and not parse(c, <const char*> text):
        c.count = 0
        error = EILSEQ
    free(text)
    c.dirty = error != 0
    return EILSEQ if error == EFBIG else error


cdef int epochs_write(EpochCache* c, int folder, bint sync) noexcept nogil:
    cdef int64_t room = (c.count + 2) * <int64_t> LINE_BYTES_MAX
    cdef char* text = <char*> malloc(room)
    cdef int64_t n
    cdef int64_t written
    cdef int32_t i
    cdef int error = 0
    if text == NULL:
        return ENOMEM
    n = snprintf(text, room, "0\n%d\n", c.count)
    for i in range(c.count):
        n += snprintf(text + n, room - n, "%d %lld\n", c.entries[i].epoch,
                      <long long> c.entries[i].start_offset)
    cdef int fd = openat(folder, TEMPORARY, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
    if fd < 0:
        error = errno
    else:
        written = write(fd, text, n)
        if written != n:
            error = errno if written < 0 else ENOSPC
        elif sync and fsync(fd) != 0:
            error = errno
        close(fd)
        if error == 0 and renameat(folder, TEMPORARY, folder, CHECKPOINT) != 0:
            error = errno
    free(text)
    if error == 0:
        c.dirty = 0
    return error
