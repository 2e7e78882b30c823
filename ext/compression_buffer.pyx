"""A growing piece of malloc's memory."""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    ROOM_BYTES_MIN = 1024
    STEP_BYTES_MIN = 65536
    EXPANSION_GUESS = 4         # output of a byte of input


cdef int buffer_reserve(Buffer* b, size_t more) noexcept nogil:
    cdef size_t room = b.room
    cdef void* grown
    if more <= room - b.n:
        return CODEC_OK
    if more > <size_t> -1 - b.n:
        return CODEC_NO_MEMORY
    room = room + room // 2 if room >= ROOM_BYTES_MIN else ROOM_BYTES_MIN
    if room < b.n + more:
        room = b.n + more
    grown = realloc(b.p, room)
    if grown == NULL:
        return CODEC_NO_MEMORY
    b.p = <unsigned char*> grown
    b.room = room
    return CODEC_OK


cdef int buffer_reserve_step(Buffer* b, size_t done, size_t n, size_t limit) noexcept nogil:
    cdef size_t more = done if done else n * EXPANSION_GUESS
    if done > limit:
        return CODEC_TOO_LARGE
    more = more if more > STEP_BYTES_MIN else STEP_BYTES_MIN
    more = more if more < limit - done else limit - done + 1
    return buffer_reserve(b, more)


cdef int buffer_put(Buffer* b, const void* p, size_t n) noexcept nogil:
    if buffer_reserve(b, n) != CODEC_OK:
        return CODEC_NO_MEMORY
    if n:
        memcpy(b.p + b.n, p, n)
        b.n += n
    return CODEC_OK


cdef void buffer_free(Buffer* b) noexcept nogil:
    free(b.p)
    b.p = NULL
    b.n = 0
    b.room = 0
