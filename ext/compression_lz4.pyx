"""LZ4 frames and blocks. A block is sequences of: token (upper four bits: number of literals,
lower: match length less 4; 15 goes on in bytes until one is not 255), literals, 16-bit offset.
"""

from libc.stdint cimport uint16_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, buffer_reserve,
)
from kbroker.ext.compression_match cimport (
    Match, Matcher, copy_literals, copy_match, match_init, match_next,
)
from kbroker.ext.endian cimport load_le16, load_le32, load_le64, store_le16, store_le32


cdef enum:
    FRAME_MAGIC = 0x184D2204
    SKIPPABLE_MAGIC = 0x184D2A50     # lowest four bits free
    FLAG_VERSION = 0x40
    FLAG_INDEPENDENT = 0x20
    FLAG_BLOCK_CHECKSUM = 0x10
    FLAG_CONTENT_SIZE = 0x08
    FLAG_CONTENT_CHECKSUM = 0x04
    FLAGS_REFUSED = 0x83             # another version, the reserved bit, a dictionary
    BLOCK_64K = 0x40
    BLOCK_BYTES = 65536
    WINDOW_BYTES = 65535
    LEVEL_QUICK = 9                  # Kafka's default level is lz4's quick compressor


cdef inline uint32_t rotate(uint32_t v, int bits) noexcept nogil:
    return v << bits | v >> (32 - bits)


cdef uint32_t xxh32(const uint8_t* p, size_t n) noexcept nogil:
    """xxHash, 32 bits, seed 0 (github.com/Cyan4973/xxHash, doc/xxhash_spec.md)."""
    cdef uint32_t p1 = 2654435761
    cdef uint32_t p2 = 2246822519
    cdef uint32_t p3 = 3266489917
    cdef uint32_t p4 = 668265263
    cdef uint32_t p5 = 374761393
    cdef uint32_t a = p1 + p2
    cdef uint32_t b = p2
    cdef uint32_t c = 0
    cdef uint32_t d = 0 - p1
    cdef uint32_t h = p5
    cdef size_t left = n
    if left >= 16:
        while left >= 16:
            a = rotate(a + load_le32(p) * p2, 13) * p1
            b = rotate(b + load_le32(p + 4) * p2, 13) * p1
            c = rotate(c + load_le32(p + 8) * p2, 13) * p1
            d = rotate(d + load_le32(p + 12) * p2, 13) * p1
            p += 16
            left -= 16
        h = rotate(a, 1) + rotate(b, 7) + rotate(c, 12) + rotate(d, 18)
    h += <uint32_t> n
    while left >= 4:
        h = rotate(h + load_le32(p) * p3, 17) * p4
        p += 4
        left -= 4
    while left:
        h = rotate(h + p[0] * p5, 11) * p1
        p += 1
        left -= 1
    h = (h ^ h >> 15) * p2
    h = (h ^ h >> 13) * p3
    return h ^ h >> 16


# ---- compress

cdef inline uint8_t* put_length(uint8_t* op, uint32_t n) noexcept nogil:
    while n >= 255:
        op[0] = 255
        op += 1
        n -= 255
    op[0] = <uint8_t> n
    return op + 1


cdef inline uint8_t* put_literals(
    uint8_t* op, const uint8_t* p, uint32_t n, uint32_t match_code
) noexcept nogil:
    op[0] = <uint8_t> ((n if n < 15 else 15) << 4 | match_code)
    op += 1
    if n >= 15:
        op = put_length(op, n - 15)
    memcpy(op, p, n)
    return op + n


cdef size_t compress_block(
    Matcher* m, const uint8_t* p, size_t n, uint8_t* out
) noexcept nogil:
    """Bytes written; `out` has room for n + n / 255 + 16."""
    cdef const uint8_t* anchor = p
    cdef const uint8_t* end = p + n
    cdef uint8_t* op = out
    cdef Match found
    cdef uint32_t code
    match_init(m, p, n)
    while match_next(m, anchor, &found):
        code = found.length - 4
        op = put_literals(op, anchor, <uint32_t> (found.at - anchor), code if code < 15 else 15)
        store_le16(op, <uint16_t> (found.at - found.source))
        op += 2
        if code >= 15:
            op = put_length(op, code - 15)
        anchor = found.at + found.length
    return put_literals(op, anchor, <uint32_t> (end - anchor), 0) - out


cdef int lz4_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    cdef size_t start = out.n
    cdef size_t size, packed
    cdef uint8_t* at
    cdef Matcher* m = <Matcher*> malloc(sizeof(Matcher))
    if m == NULL or buffer_reserve(out, n + n // 255 + 64 + n // BLOCK_BYTES * 24) != CODEC_OK:
        free(m)
        return CODEC_NO_MEMORY
    m.depth = 0 if level <= 0 or level == LEVEL_QUICK else 1 << (level if level < 12 else 12)
    at = out.p + start
    store_le32(at, FRAME_MAGIC)
    at[4] = FLAG_VERSION | FLAG_INDEPENDENT
    at[5] = BLOCK_64K
    at[6] = <uint8_t> (xxh32(at + 4, 2) >> 8)
    at += 7
    while n:
        size = n if n < BLOCK_BYTES else BLOCK_BYTES
        packed = compress_block(m, p, size, at + 4)
        if packed < size:
            store_le32(at, <uint32_t> packed)
        else:
            packed = size
            memcpy(at + 4, p, size)
            store_le32(at, <uint32_t> size | <uint32_t> 1 << 31)
        at += 4 + packed
        p += size
        n -= size
    store_le32(at, 0)
    out.n = at + 4 - out.p
    free(m)
    return CODEC_OK


# ---- decompress

cdef inline bint get_length(const uint8_t** at, const uint8_t* end, size_t* n) noexcept nogil:
    """The bytes that go on with a length of 15; False when they run over the end."""
    cdef const uint8_t* p = at[0]
    cdef uint8_t byte = 255
    while byte == 255:
        if p >= end:
            return False
        byte = p[0]
        p += 1
        n[0] += byte
    at[0] = p
    return True


cdef int decompress_block(
    const uint8_t* p, size_t n, const uint8_t* history, uint8_t* out, size_t room,
    size_t* written,
) noexcept nogil:
    """One block to `out`, whose matches may reach back to `history`."""
    cdef const uint8_t* end = p + n
    cdef uint8_t* op = out
    cdef uint8_t* op_end = out + room
    cdef size_t length, offset
    cdef uint8_t token
    while p < end:
        token = p[0]
        p += 1
        length = token >> 4
        if length == 15 and not get_length(&p, end, &length):
            return CODEC_CORRUPT
        if length > <size_t> (end - p):
            return CODEC_CORRUPT
        if length > <size_t> (op_end - op):
            return CODEC_TOO_LARGE
        copy_literals(op, p, length, op_end - op, end - p)
        op += length
        p += length
        if p == end:
            written[0] = op - out
            return CODEC_OK
        if end - p < 2:
            return CODEC_CORRUPT
        offset = load_le16(p)
        p += 2
        length = token & 15
        if length == 15 and not get_length(&p, end, &length):
            return CODEC_CORRUPT
        length += 4
        if offset == 0 or offset > <size_t> (op - history):
            return CODEC_CORRUPT
        if length > <size_t> (op_end - op):
            return CODEC_TOO_LARGE
        copy_match(op, offset, length, op_end - op)
        op += length
    return CODEC_CORRUPT


ctypedef struct Frame:
    const uint8_t* p                # behind the header
    size_t block_bytes_max
    uint64_t content_bytes          # where has_content_bytes
    bint has_content_bytes
    bint independent
    bint block_checksum
    bint content_checksum


cdef bint read_frame_header(const uint8_t* p, const uint8_t* end, Frame* f) noexcept nogil:
    """p stands behind the magic."""
    cdef const uint8_t* start = p
    cdef uint8_t flags
    cdef size_t n = 2
    if end - p < 3:
        return False
    flags = p[0]
    if flags & FLAGS_REFUSED or not flags & FLAG_VERSION or p[1] & 0x8F or p[1] >> 4 < 4:
        return False
    f.block_bytes_max = <size_t> 1 << (8 + 2 * (p[1] >> 4))
    f.independent = flags & FLAG_INDEPENDENT != 0
    f.block_checksum = flags & FLAG_BLOCK_CHECKSUM != 0
    f.content_checksum = flags & FLAG_CONTENT_CHECKSUM != 0
    f.has_content_bytes = flags & FLAG_CONTENT_SIZE != 0
    f.content_bytes = 0
    if f.has_content_bytes:
        n += 8
    if <size_t> (end - p) < n + 1 or start[n] != <uint8_t> (xxh32(start, n) >> 8):
        return False
    if f.has_content_bytes:
        f.content_bytes = load_le64(p + 2)
    f.p = start + n + 1
    return True


cdef int read_block(
    Frame* f, const uint8_t* end, uint32_t size, size_t first, size_t most, Buffer* out
) noexcept nogil:
    """A block of `size` (with its bit) at f.p; `most` bytes more may come to out, whose bytes
    from `first` on are this frame's. Moves f.p."""
    cdef bint plain = size >> 31
    cdef size_t packed = size & 0x7FFFFFFF
    cdef size_t room = f.block_bytes_max if f.block_bytes_max < most else most
    cdef size_t written = packed
    cdef uint8_t* history
    cdef int code = CODEC_OK
    if packed > f.block_bytes_max or packed + 4 * f.block_checksum > <size_t> (end - f.p):
        return CODEC_CORRUPT
    if f.block_checksum and load_le32(f.p + packed) != xxh32(f.p, packed):
        return CODEC_CORRUPT
    if plain and packed > most:
        return CODEC_TOO_LARGE
    if buffer_reserve(out, packed if plain else room) != CODEC_OK:
        return CODEC_NO_MEMORY
    if plain:
        memcpy(out.p + out.n, f.p, packed)
    else:
        history = out.p + (out.n if f.independent else first)
        code = decompress_block(f.p, packed, history, out.p + out.n, room, &written)
        if code == CODEC_TOO_LARGE and room == f.block_bytes_max:
            code = CODEC_CORRUPT
    if code == CODEC_OK:
        out.n += written
        f.p += packed + 4 * f.block_checksum
    return code


cdef int read_frame(
    const uint8_t** at, const uint8_t* end, size_t most, Buffer* out
) noexcept nogil:
    """One frame behind its magic; moves at."""
    cdef Frame f
    cdef size_t first = out.n
    cdef uint32_t size
    cdef int code
    if not read_frame_header(at[0], end, &f):
        return CODEC_CORRUPT
    if f.content_bytes > most:
        return CODEC_TOO_LARGE
    while True:
        if end - f.p < 4:
            return CODEC_CORRUPT
        size = load_le32(f.p)
        f.p += 4
        if size == 0:
            break
        code = read_block(&f, end, size, first, most - (out.n - first), out)
        if code != CODEC_OK:
            return code
    if f.content_checksum:
        if end - f.p < 4 or load_le32(f.p) != xxh32(out.p + first, out.n - first):
            return CODEC_CORRUPT
        f.p += 4
    if f.has_content_bytes and f.content_bytes != out.n - first:
        return CODEC_CORRUPT
    at[0] = f.p
    return CODEC_OK


cdef int lz4_decompress(
    const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef size_t start = out.n
    cdef uint32_t magic
    cdef int code = CODEC_CORRUPT if n == 0 else CODEC_OK
    while code == CODEC_OK and p < end:
        code = CODEC_CORRUPT
        if end - p < 8:
            break
        magic = load_le32(p)
        p += 4
        if magic == FRAME_MAGIC:
            code = read_frame(&p, end, limit - (out.n - start), out)
        elif magic >> 4 == SKIPPABLE_MAGIC >> 4 and load_le32(p) <= end - p - 4:
            p += 4 + load_le32(p)
            code = CODEC_OK
    if code != CODEC_OK:
        out.n = start
    return code


cdef bint lz4_is_kafkas(const uint8_t* p, size_t n) noexcept nogil:
    cdef const uint8_t* end = p + n
    cdef Frame f
    cdef size_t size
    if n < 8 or load_le32(p) != FRAME_MAGIC or not read_frame_header(p + 4, end, &f):
        return False
    while f.independent and end - f.p >= 4:
        size = load_le32(f.p) & 0x7FFFFFFF
        f.p += 4
        if size == 0:
            return f.p + 4 * f.content_checksum == end
        size += 4 * f.block_checksum
        if size > <size_t> (end - f.p):
            return False
        f.p += size
    return False
