"""The four codecs of Kafka's record batches, bounded, without the GIL.

gzip and zstd are the system's libz.so.1 and libzstd.so.1, opened when this module is loaded;
lz4 frames and snappy are written here (compression_lz4, compression_snappy), because no
library of theirs is on every machine. Where a library is missing, CODEC_UNAVAILABLE comes back:
the broker refuses what it would have to decompress, kbroker.ext.records, where tools and clients
call it, does it with Python's libraries.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, CODEC_UNAVAILABLE, Buffer,
    buffer_free, buffer_put, buffer_reserve,
)


cdef enum:                 # as in the lowest three bits of a batch's attributes
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    CODEC_MAX = 4

cdef enum:
    CODEC_LEVEL_DEFAULT = -2147483648   # each codec's own default, as Kafka has it


cdef bint codec_available(int codec) noexcept nogil
# What to install where the codec is not available, in words for the operator.
cdef const char* codec_library(int codec) noexcept nogil

# Append the (de)compressed form of n bytes at p to `out`. `limit` bounds what is appended by
# decompress: a bomb costs at most limit bytes. On an error `out` is as long as before.
cdef int codec_compress(
    int codec, int level, const uint8_t* p, size_t n, Buffer* out
) noexcept nogil
cdef int codec_decompress(
    int codec, const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil
