"""gzip by libdeflate.so.0 (1.0 and later), which takes an input as a whole in half of zlib's time.

It is not on every machine and cannot do all: CODEC_UNAVAILABLE means that zlib is to do it.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport Buffer


# Level -1 (the default: 6) to 9, or CODEC_UNAVAILABLE.
cdef int deflate_whole(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil

# One member whose trailer tells its size, and nothing behind it; CODEC_UNAVAILABLE for anything
# else, be it several members, too much output or corrupt.
cdef int inflate_whole(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil
