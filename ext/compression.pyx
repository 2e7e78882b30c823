"""The four codecs by their number, and Python's face of them."""

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.compression_gzip cimport gzip_available, gzip_compress, gzip_decompress
from kbroker.ext.compression_lz4 cimport lz4_compress, lz4_decompress, xxh32
from kbroker.ext.compression_snappy cimport snappy_compress, snappy_decompress
from kbroker.ext.compression_zstd cimport zstd_available, zstd_compress, zstd_decompress

cdef enum:                           # Kafka's compression.*.level defaults
    GZIP_LEVEL_DEFAULT = -1
    LZ4_LEVEL_DEFAULT = 9
    ZSTD_LEVEL_DEFAULT = 3


cdef bint codec_available(int codec) noexcept nogil:
    if codec == CODEC_GZIP:
        return gzip_available()
    if codec == CODEC_ZSTD:
        return zstd_available()
    return codec >= CODEC_NONE and codec <= CODEC_MAX


cdef const char* codec_library(int codec) noexcept nogil:
    if codec == CODEC_GZIP:
        return "gzip: libz.so.1 (package zlib1g, or zlib)"
    if codec == CODEC_ZSTD:
        return "zstd: libzstd.so.1 (package libzstd1, or libzstd)"
    return ""


cdef int codec_compress(
    int codec, int level, const uint8_t* p, size_t n, Buffer* out
) noexcept nogil:
    cdef bint default = level == CODEC_LEVEL_DEFAULT
    if codec == CODEC_NONE:
        return buffer_put(out, p, n)
    if codec == CODEC_GZIP:
        return gzip_compress(GZIP_LEVEL_DEFAULT if default else level, p, n, out)
    if codec == CODEC_SNAPPY:
        return snappy_compress(p, n, out)
    if codec == CODEC_LZ4:
        return lz4_compress(LZ4_LEVEL_DEFAULT if default else level, p, n, out)
    if codec == CODEC_ZSTD:
        return zstd_compress(ZSTD_LEVEL_DEFAULT if default else level, p, n, out)
    return CODEC_UNAVAILABLE


cdef int codec_decompress(
    int codec, const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    if codec == CODEC_NONE:
        return buffer_put(out, p, n) if n <= limit else CODEC_TOO_LARGE
    if codec == CODEC_GZIP:
        return gzip_decompress(p, n, limit, out)
    if codec == CODEC_SNAPPY:
        return snappy_decompress(p, n, limit, out)
    if codec == CODEC_LZ4:
        return lz4_decompress(p, n, limit, out)
    if codec == CODEC_ZSTD:
        return zstd_decompress(p, n, limit, out)
    return CODEC_UNAVAILABLE


# ---- Python's face

NAMES = ("none", "gzip", "snappy", "lz4", "zstd")


class CodecError(ValueError):
    """`code` is one of the results in compression_buffer.pxd."""

    def __init__(self, code: int) -> None:
        super().__init__(MESSAGES[code])
        self.code = code


MESSAGES = {
    CODEC_CORRUPT: "the bytes are not what the codec writes",
    CODEC_TOO_LARGE: "more output than the limit",
    CODEC_NO_MEMORY: "out of memory",
    CODEC_UNAVAILABLE: "no such codec on this machine",
}


def available(name: str) -> bool:
    """Whether the codec works on this machine without Python's libraries."""
    return codec_available(NAMES.index(name)) != 0


def compress(
    name: str, data: bytes | bytearray | memoryview, level: int | None = None
) -> bytes:
    """As a batch of Kafka holds it. Raises CodecError."""
    cdef int codec = NAMES.index(name)
    cdef int wanted = CODEC_LEVEL_DEFAULT if level is None else level
    cdef Borrowed view = Borrowed(data)
    cdef const uint8_t* p = view.p
    cdef size_t n = view.n
    cdef Buffer out
    cdef int code
    out.p = NULL
    out.n = out.room = 0
    with nogil:
        code = codec_compress(codec, wanted, p, n, &out)
    return finish(&out, code)


def decompress(name: str, data: bytes | bytearray | memoryview, limit: int) -> bytes:
    """The other way; CodecError where there are more than `limit` bytes."""
    cdef int codec = NAMES.index(name)
    cdef Borrowed view = Borrowed(data)
    cdef const uint8_t* p = view.p
    cdef size_t n = view.n
    cdef size_t most = limit
    cdef Buffer out
    cdef int code
    out.p = NULL
    out.n = out.room = 0
    with nogil:
        code = codec_decompress(codec, p, n, most, &out)
    return finish(&out, code)


cdef bytes finish(Buffer* out, int code):
    try:
        if code != CODEC_OK:
            raise CodecError(code)
        return out.p[:out.n] if out.n else b""
    finally:
        buffer_free(out)


def xxhash32(data: bytes) -> int:
    """The checksum of LZ4 frames, seed 0."""
    return xxh32(data, len(data))
