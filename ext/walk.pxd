"""Walk the record batches of a file by their headers; check the CRC of each where asked.

A Walk borrows the file descriptor and owns a buffer. It never reads at or beyond `end`, so a file
that grows meanwhile does not matter. Free of locks; a Walk belongs to one thread.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo

cdef enum:
    WALK_END = 0            # nothing left before `end`
    WALK_BATCH = 1          # `info` is the batch at `at`, whole before `end`
    WALK_TORN = 2           # bytes at `at` that are no whole batch (cut short, or garbage)
    WALK_ERROR = -1         # a read failed: `error` is the errno
    WALK_NO_MEMORY = -2

ctypedef struct Walk:
    int fd
    int error
    int64_t at              # position of the batch that walk_next found
    int64_t next            # position of the one behind it
    int64_t end
    uint8_t* buffer         # holds [buffer_at, buffer_at + filled) of the file
    int64_t buffer_at
    int64_t filled
    int64_t room
    int64_t reading         # bytes of the next read
    BatchInfo info

# Walk [start, end) of fd. room: bytes to read at a time, 0 for what suits headers.
cdef int walk_init(Walk* w, int fd, int64_t start, int64_t end, int64_t room) noexcept nogil
cdef void walk_free(Walk* w) noexcept nogil
cdef int walk_next(Walk* w) noexcept nogil
# 1 when the CRC of the batch just found is right, 0 when it is not, or WALK_ERROR.
cdef int walk_crc(Walk* w) noexcept nogil
# The first `most` bytes of the batch just found, in the buffer; NULL when they cannot be read.
cdef const uint8_t* walk_bytes(Walk* w, int64_t most) noexcept nogil
# pread until n bytes are there: n, fewer at the end of the file, or minus errno.
cdef int64_t read_fully(int fd, void* out, int64_t n, int64_t at) noexcept nogil
# All of a file of at most `most` bytes, a NUL behind it: 0 or an errno, EFBIG for a longer one.
# `out` is malloc'ed, NULL after an error.
cdef int read_whole(const char* path, int64_t most, uint8_t** out, int64_t* n) noexcept nogil
