"""A growing piece of malloc's memory."""

from libc.stdlib cimport free, realloc
from libc.string cimport memcpy

cdef enum:
    ROOM_BYTES_MIN = 1024


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
