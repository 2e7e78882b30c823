"""What LZ4 and snappy share: where the compressors find repetitions, how the others copy them.

A block of at most 64 KiB is searched from left to right for places whose next four bytes stood
earlier in the block. `depth` 0 looks at one earlier place, by a hash of the four bytes, and
steps faster the longer it finds nothing; a higher depth follows a chain of that many earlier
places and takes the longest match. A Matcher is one caller's scratch memory, of malloc.
"""
from libc.stdint cimport uint8_t, uint16_t, uint32_t, uint64_t
from libc.string cimport memcpy, memset

from kbroker.ext.endian cimport load_le64
from kbroker.ext.wire cimport likely, unlikely


cdef extern from *:
    int __builtin_ctzll(unsigned long long) noexcept nogil


cdef enum:
    MATCH_HASH_BITS = 13
    MATCH_BLOCK_BYTES_MAX = 65536
    MATCH_BYTES_MIN = 4
    # LZ4: the last 5 bytes are literals, the last match begins 12 bytes before the end.
    MATCH_TAIL_BYTES = 5
    MATCH_START_BYTES = 12
    MATCH_SKIP_SHIFT = 6             # after 2^6 misses every second place is looked at
    COPY_BYTES = 16                  # copied at once where there is room for it


ctypedef struct Matcher:
    const uint8_t* base              # first byte of the block
    const uint8_t* last_start        # no match begins behind it
    const uint8_t* match_end         # no match goes beyond it
    const uint8_t* inserted          # with chains: every place before it is in them
    int depth
    uint16_t heads[8192]             # by hash: the last place seen
    uint16_t chain[65536]            # by place: the place before it with the same hash


ctypedef struct Match:
    const uint8_t* at                # where it begins
    const uint8_t* source            # what it repeats
    uint32_t length                  # bytes, at least MATCH_BYTES_MIN


cdef inline uint32_t match_load(const uint8_t* p) noexcept nogil:
    cdef uint32_t v
    memcpy(&v, p, 4)
    return v


cdef inline uint32_t match_hash(uint32_t four) noexcept nogil:
    return <uint32_t> (four * <uint32_t> 2654435761) >> (32 - MATCH_HASH_BITS)


cdef inline void match_init(Matcher* m, const uint8_t* p, size_t n) noexcept nogil:
    """Begin a block. Less than 13 bytes have no match."""
    m.base = p
    m.inserted = p
    m.match_end = p + n - MATCH_TAIL_BYTES if n > MATCH_START_BYTES else p
    m.last_start = p + n - MATCH_START_BYTES if n > MATCH_START_BYTES else p
    memset(m.heads, 0, sizeof(m.heads))


cdef inline uint32_t match_length(
    const uint8_t* p, const uint8_t* source, const uint8_t* end
) noexcept nogil:
    """Bytes that are equal from p and from source on, p staying before end."""
    cdef const uint8_t* start = p
    cdef uint64_t difference
    while end - p >= 8:
        difference = load_le64(p) ^ load_le64(source)
        if difference:
            return <uint32_t> (p - start) + (__builtin_ctzll(difference) >> 3)
        p += 8
        source += 8
    while p < end and p[0] == source[0]:
        p += 1
        source += 1
    return <uint32_t> (p - start)


cdef inline bint match_fast(Matcher* m, const uint8_t* p, Match* out) noexcept nogil:
    cdef uint32_t misses = 1 << MATCH_SKIP_SHIFT
    cdef uint32_t four, h
    cdef const uint8_t* source
    while p < m.last_start:
        four = match_load(p)
        h = match_hash(four)
        source = m.base + m.heads[h]
        m.heads[h] = <uint16_t> (p - m.base)
        if source < p and match_load(source) == four:
            out.at = p
            out.source = source
            out.length = match_length(p, source, m.match_end)
            return out.length >= MATCH_BYTES_MIN
        p += misses >> MATCH_SKIP_SHIFT
        misses += 1
    return False


cdef inline void match_insert(Matcher* m, const uint8_t* until) noexcept nogil:
    """Put every place before `until` into its chain. A place 0 ends a chain."""
    cdef const uint8_t* p = m.inserted
    cdef uint32_t h
    while p < until:
        h = match_hash(match_load(p))
        m.chain[p - m.base] = m.heads[h]
        m.heads[h] = <uint16_t> (p - m.base)
        p += 1
    m.inserted = p


cdef inline bint match_deep(Matcher* m, const uint8_t* p, Match* out) noexcept nogil:
    cdef uint32_t place, length
    cdef int tries
    out.length = 0
    while p < m.last_start:
        match_insert(m, p)
        place = m.heads[match_hash(match_load(p))]
        tries = m.depth
        while tries > 0 and m.base + place < p:
            length = match_length(p, m.base + place, m.match_end)
            if length >= MATCH_BYTES_MIN and length > out.length:
                out.at = p
                out.source = m.base + place
                out.length = length
            if place == 0:
                break
            place = m.chain[place]
            tries -= 1
        if out.length:
            return True
        p += 1
    return False


cdef inline bint match_next(Matcher* m, const uint8_t* p, Match* out) noexcept nogil:
    """The first match at or behind p; False when the rest of the block is literals."""
    if likely(m.depth == 0):
        return match_fast(m, p, out)
    return match_deep(m, p, out)


# ---- decompressing: n bytes to op; the bounds of the n bytes have been checked

cdef inline void copy_literals(
    uint8_t* op, const uint8_t* p, size_t n, size_t room, size_t left
) noexcept nogil:
    """`room` bytes may be written at op, `left` be read at p."""
    if n <= COPY_BYTES and room >= COPY_BYTES and left >= COPY_BYTES:
        memcpy(op, p, COPY_BYTES)
    else:
        memcpy(op, p, n)


cdef inline void copy_match(uint8_t* op, size_t offset, size_t n, size_t room) noexcept nogil:
    """From `offset` bytes before op; source and target may overlap, and then repeat. `room`
    bytes may be written at op."""
    cdef const uint8_t* source = op - offset
    cdef uint8_t* end = op + n
    if offset >= COPY_BYTES and room >= n + COPY_BYTES:
        while op < end:
            memcpy(op, source, COPY_BYTES)
            op += COPY_BYTES
            source += COPY_BYTES
    elif offset >= n:
        memcpy(op, source, n)
    elif offset == 1:
        memset(op, source[0], n)
    else:
        while op < end:
            op[0] = source[0]
            op += 1
            source += 1
