"""Snappy blocks. A block is the length of its content as a varint, then elements: the lowest two
bits of a tag say literal (0), copy with 11-bit offset (1), with 16-bit (2), with 32-bit (3).
"""

from libc.stdint cimport uint16_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memcpy

from kbroker.ext.compression_buffer cimport (
    CODEC_CORRUPT, CODEC_NO_MEMORY, CODEC_OK, CODEC_TOO_LARGE, buffer_reserve,
)
from kbroker.ext.compression_match cimport (
    Match, Matcher, copy_literals, copy_match, match_init, match_next,
)
from kbroker.ext.endian cimport load_be32, load_le16, load_le32, store_be32, store_le16
from kbroker.ext.wire cimport Cursor, cursor_init, get_uvarint, store_uvarlong


cdef enum:
    CHUNK_BYTES = 32768
    HEADER_BYTES = 16
    MAGIC_BYTES = 8

cdef const uint8_t* MAGIC = <const uint8_t*> b"\x82SNAPPY\x00"


# ---- compress

cdef inline uint8_t* put_literal(uint8_t* op, const uint8_t* p, uint32_t n) noexcept nogil:
    if n == 0:
        return op
    if n <= 60:
        op[0] = <uint8_t> ((n - 1) << 2)
        op += 1
    elif n <= 256:
        op[0] = 60 << 2
        op[1] = <uint8_t> (n - 1)
        op += 2
    else:
        op[0] = 61 << 2
        store_le16(op + 1, <uint16_t> (n - 1))
        op += 3
    memcpy(op, p, n)
    return op + n


cdef inline uint8_t* put_copy(uint8_t* op, uint32_t offset, uint32_t n) noexcept nogil:
    cdef uint32_t part
    while n:
        # A rest below 4 bytes would have no short form.
        part = n if n <= 64 else 60 if n < 68 else 64
        n -= part
        if part >= 4 and part <= 11 and offset < 2048:
            op[0] = <uint8_t> (1 | (part - 4) << 2 | offset >> 8 << 5)
            op[1] = <uint8_t> offset
            op += 2
        else:
            op[0] = <uint8_t> (2 | (part - 1) << 2)
            store_le16(op + 1, <uint16_t> offset)
            op += 3
    return op


cdef size_t compress_block(
    Matcher* m, const uint8_t* p, size_t n, uint8_t* out
) noexcept nogil:
    """Bytes written; `out` has room for 32 + n + n / 6."""
    cdef const uint8_t* anchor = p
    cdef const uint8_t* end = p + n
    cdef uint8_t* op = store_uvarlong(out, n)
    cdef Match found
    match_init(m, p, n)
    while match_next(m, anchor, &found):
        op = put_literal(op, anchor, <uint32_t> (found.at - anchor))
        op = put_copy(op, <uint32_t> (found.at - found.source), found.length)
        anchor = found.at + found.length
    return put_literal(op, anchor, <uint32_t> (end - anchor)) - out


cdef int snappy_compress(const uint8_t* p, size_t n, Buffer* out) noexcept nogil:
    cdef uint8_t* at
    cdef size_t size, packed
    cdef Matcher* m = <Matcher*> malloc(sizeof(Matcher))
    if m == NULL or buffer_reserve(
        out, HEADER_BYTES + n + n // 6 + (n // CHUNK_BYTES + 1) * 36
    ) != CODEC_OK:
        free(m)
        return CODEC_NO_MEMORY
    m.depth = 0
    at = out.p + out.n
    memcpy(at, MAGIC, MAGIC_BYTES)
    store_be32(at + 8, 1)
    store_be32(at + 12, 1)
    at += HEADER_BYTES
    while n:
        size = n if n < CHUNK_BYTES else CHUNK_BYTES
        packed = compress_block(m, p, size, at + 4)
        store_be32(at, <uint32_t> packed)
        at += 4 + packed
        p += size
        n -= size
    out.n = at - out.p
    free(m)
    return CODEC_OK


# ---- decompress

cdef inline const uint8_t* literal_length(
    const uint8_t* p, const uint8_t* end, uint8_t tag, uint64_t* n
) noexcept nogil:
    """Length of the literal whose tag stood before p; NULL when it runs over the end."""
    cdef int bytes_ = (tag >> 2) - 59
    cdef int i
    n[0] = (tag >> 2) + 1
    if bytes_ <= 0:
        return p
    if end - p < bytes_:
        return NULL
    n[0] = 1
    for i in range(bytes_):
        n[0] += <uint64_t> p[i] << 8 * i
    return p + bytes_


cdef inline const uint8_t* copy_element(
    const uint8_t* p, const uint8_t* end, uint8_t tag, uint64_t* n, uint64_t* offset
) noexcept nogil:
    cdef int kind = tag & 3
    cdef int bytes_ = 4 if kind == 3 else kind
    if end - p < bytes_:
        return NULL
    n[0] = (tag >> 2) + 1
    if kind == 1:
        n[0] = (tag >> 2 & 7) + 4
        offset[0] = <uint64_t> (tag >> 5) << 8 | p[0]
    elif kind == 2:
        offset[0] = load_le16(p)
    else:
        offset[0] = load_le32(p)
    return p + bytes_


cdef bint decompress_block(
    const uint8_t* p, const uint8_t* end, uint8_t* out, size_t room
) noexcept nogil:
    """The elements at p, which must give exactly `room` bytes."""
    cdef uint8_t* op = out
    cdef uint8_t* op_end = out + room
    cdef uint64_t n, offset
    cdef uint8_t tag
    while p != NULL and p < end:
        tag = p[0]
        p += 1
        if tag & 3 == 0:
            p = literal_length(p, end, tag, &n)
            if p == NULL or n > <uint64_t> (end - p) or n > <uint64_t> (op_end - op):
                return False
            copy_literals(op, p, n, op_end - op, end - p)
            op += n
            p += n
            continue
        p = copy_element(p, end, tag, &n, &offset)
        if p == NULL or offset == 0 or offset > <uint64_t> (op - out):
            return False
        if n > <uint64_t> (op_end - op):
            return False
        copy_match(op, offset, n, op_end - op)
        op += n
    return p == end and op == op_end


cdef int read_block(const uint8_t* p, size_t n, size_t most, Buffer* out) noexcept nogil:
    cdef Cursor c
    cdef uint32_t size
    cursor_init(&c, p, n)
    size = get_uvarint(&c)
    # No element gives more than 64 bytes for its three, so a larger claim is a lie.
    if c.bad or size > <uint64_t> n * 32:
        return CODEC_CORRUPT
    if size > most:
        return CODEC_TOO_LARGE
    if buffer_reserve(out, size) != CODEC_OK:
        return CODEC_NO_MEMORY
    if not decompress_block(c.p, c.end, out.p + out.n, size):
        return CODEC_CORRUPT
    out.n += size
    return CODEC_OK


cdef inline bint is_header(const uint8_t* p, const uint8_t* end) noexcept nogil:
    return end - p >= HEADER_BYTES and memcmp(p, MAGIC, MAGIC_BYTES) == 0


cdef int read_chunks(
    const uint8_t* p, const uint8_t* end, size_t limit, Buffer* out
) noexcept nogil:
    """The Java form; a further header may stand before any chunk, where streams were joined."""
    cdef size_t start = out.n
    cdef uint32_t size
    cdef int code
    while p < end:
        if is_header(p, end):
            if load_be32(p + 8) < 1:
                return CODEC_CORRUPT
            p += HEADER_BYTES
            continue
        if end - p < 4:
            return CODEC_CORRUPT
        size = load_be32(p)
        p += 4
        if size > <size_t> (end - p):
            return CODEC_CORRUPT
        code = read_block(p, size, limit - (out.n - start), out)
        if code != CODEC_OK:
            return code
        p += size
    return CODEC_OK


cdef int snappy_decompress(
    const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil:
    cdef size_t start = out.n
    cdef int code
    if is_header(p, p + n):
        code = read_chunks(p, p + n, limit, out)
    else:
        code = read_block(p, n, limit, out)
    if code != CODEC_OK:
        out.n = start
    return code
