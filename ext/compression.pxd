"""The four codecs of Kafka's record batches, bounded, without the GIL.

gzip and zstd are the system's libz.so.1 and libzstd.so.1, opened when first needed; lz4
frames and snappy are this module's own. `codec_available` says whether a codec can be used on
this machine without Python; where it says no, Codec.UNAVAILABLE comes back and the caller
hands the work to the control lane (see compression.pyx).
"""
from libc.stdint cimport int8_t, uint8_t


cdef enum:                 # as in the lowest three bits of a batch's attributes
    CODEC_NONE = 0
    CODEC_GZIP = 1
    CODEC_SNAPPY = 2
    CODEC_LZ4 = 3
    CODEC_ZSTD = 4
    CODEC_MAX = 4

cdef enum:                 # results
    CODEC_OK = 0
    CODEC_CORRUPT = -1     # the bytes are not what the codec writes
    CODEC_TOO_LARGE = -2   # more output than the limit
    CODEC_NO_MEMORY = -3
    CODEC_UNAVAILABLE = -4 # the library is not on this machine, or no such codec

cdef enum:
    CODEC_LEVEL_DEFAULT = -2147483648   # each codec's own default, as Kafka has it


ctypedef struct Buffer:    # owned, grown by realloc; all zero is an empty one
    uint8_t* p
    size_t n               # bytes used
    size_t room            # bytes allocated


cdef int buffer_reserve(Buffer* b, size_t more) noexcept nogil    # CODEC_OK or CODEC_NO_MEMORY
cdef int buffer_put(Buffer* b, const void* p, size_t n) noexcept nogil
cdef void buffer_free(Buffer* b) noexcept nogil

cdef bint codec_available(int codec) noexcept nogil

# Append the (de)compressed form of n bytes at p to `out`. `limit` bounds what is appended by
# decompress: a bomb costs at most limit bytes. On an error `out` is as long as before.
cdef int codec_compress(
    int codec, int level, const uint8_t* p, size_t n, Buffer* out
) noexcept nogil
cdef int codec_decompress(
    int codec, const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil
