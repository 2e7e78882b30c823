"""Walk the record batches of a file (see walk.pxd)."""
from libc.errno cimport EFBIG, EINTR, errno
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memset

from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET,
    BATCH_OK,
    RECORDS_OFFSET,
    batch_parse,
)
from kbroker.ext.crc32c cimport crc32c_extend
from kbroker.ext.posix cimport (
    ENOMEM,
    O_CLOEXEC,
    O_RDONLY,
    close,
    fstat,
    open,
    pread,
    stat_t,
)

cdef enum:
    HEADERS_BYTES = 16384       # read at a time while batches are small
    SPARSE_BYTES = 512          # at first, and when the last one was larger than that


cdef int64_t read_fully(int fd, void* out, int64_t n, int64_t at) noexcept nogil:
    cdef int64_t done = 0
    cdef ssize_t got
    while done < n:
        got = pread(fd, <char*> out + done, n - done, at + done)
        if got == 0:
            break
        if got < 0:
            if errno == EINTR:
                continue
            return -errno
        done += got
    return done


cdef int read_whole(const char* path, int64_t most, uint8_t** out, int64_t* n) noexcept nogil:
    cdef stat_t status
    cdef int error = 0
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC, 0)
    out[0] = NULL
    n[0] = 0
    if fd < 0:
        return errno
    if fstat(fd, &status) != 0:
        error = errno
    elif status.st_size > most:
        error = EFBIG
    else:
        out[0] = <uint8_t*> malloc(status.st_size + 1)
        error = ENOMEM if out[0] == NULL else 0
    if error == 0:
        n[0] = read_fully(fd, out[0], status.st_size, 0)
        error = <int> -n[0] if n[0] < 0 else 0
    close(fd)
    if error:
        free(out[0])
        out[0] = NULL
    else:
        out[0][n[0]] = 0
    return error


cdef int walk_init(Walk* w, int fd, int64_t start, int64_t end, int64_t room) noexcept nogil:
    memset(w, 0, sizeof(Walk))
    w.fd = fd
    w.at = start
    w.next = start
    w.end = end
    w.room = room if room > 0 else HEADERS_BYTES
    w.reading = SPARSE_BYTES if room <= 0 else room
    w.buffer = <uint8_t*> malloc(w.room)
    return 0 if w.buffer != NULL else WALK_NO_MEMORY


cdef void walk_free(Walk* w) noexcept nogil:
    free(w.buffer)
    w.buffer = NULL


cdef bint fill(Walk* w, int64_t at, int64_t bytes) noexcept nogil:
    """Read [at, at + bytes), cut at the end of the walk, into the buffer."""
    cdef int64_t got = read_fully(w.fd, w.buffer, min(bytes, w.end - at), at)
    w.buffer_at = at
    w.filled = max(<int64_t> 0, got)
    w.error = <int> -got if got < 0 else 0
    return got >= 0


cdef int walk_next(Walk* w) noexcept nogil:
    cdef int64_t left
    cdef const uint8_t* p
    cdef int code
    w.at = w.next
    left = w.end - w.at
    if left <= 0:
        return WALK_END
    if left < RECORDS_OFFSET:
        return WALK_TORN
    if w.at < w.buffer_at or w.at + RECORDS_OFFSET > w.buffer_at + w.filled:
        if not fill(w, w.at, w.reading):
            return WALK_ERROR
        w.reading = min(4 * w.reading, w.room)
        if w.filled < RECORDS_OFFSET:
            return WALK_TORN
    p = w.buffer + (w.at - w.buffer_at)
    code = batch_parse(p, p + left, &w.info)
    if code != BATCH_OK:
        return WALK_TORN
    w.next = w.at + w.info.length
    if w.info.length > HEADERS_BYTES and w.room == HEADERS_BYTES:
        w.reading = SPARSE_BYTES
    return WALK_BATCH


cdef int walk_crc(Walk* w) noexcept nogil:
    cdef int64_t at = w.at + ATTRIBUTES_OFFSET
    cdef int64_t left = w.info.length - ATTRIBUTES_OFFSET
    cdef int64_t step
    cdef uint32_t crc = 0
    while left > 0:
        if at < w.buffer_at or at >= w.buffer_at + w.filled:
            if not fill(w, at, w.room):
                return WALK_ERROR
            if w.filled == 0:
                return 0
        step = min(left, w.buffer_at + w.filled - at)
        crc = crc32c_extend(crc, w.buffer + (at - w.buffer_at), step)
        at += step
        left -= step
    return crc == w.info.crc


cdef const uint8_t* walk_bytes(Walk* w, int64_t most) noexcept nogil:
    cdef int64_t n = min(most, <int64_t> w.info.length)
    cdef void* larger
    if n > w.room:
        larger = realloc(w.buffer, n)
        if larger == NULL:
            return NULL
        w.buffer = <uint8_t*> larger
        w.room = n
        w.filled = 0
    if w.at < w.buffer_at or w.at + n > w.buffer_at + w.filled:
        if not fill(w, w.at, w.room) or w.filled < n:
            return NULL
    return w.buffer + (w.at - w.buffer_at)
