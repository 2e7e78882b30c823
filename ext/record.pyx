"""One record at a time: read with every step compared with the end, or walked in a hurry."""

from libc.stdint cimport INT64_MAX, INT64_MIN, uint32_t, uint64_t

from kbroker.ext.wire cimport (
    UVARINT_BYTES_MAX, VARLONG_BYTES_MAX, Cursor, cursor_init, get_i8, get_span, get_varint,
    get_varlong, likely, unlikely,
)


cdef bint read_record(
    const uint8_t* p, const uint8_t* end, Record* out, int32_t* offset_delta,
    int64_t* timestamp_delta,
) noexcept nogil:
    """The record at p but for offset and timestamp; False where a length is wrong. Its headers
    are counted and not looked at."""
    cdef Cursor c
    cdef int32_t length
    cursor_init(&c, p, end - p)
    length = get_varint(&c)
    if c.bad or length < 0 or length > c.end - c.p:
        return False
    c.end = c.p + length
    out.end = c.end
    get_i8(&c)
    timestamp_delta[0] = get_varlong(&c)
    offset_delta[0] = get_varint(&c)
    out.key = get_span(&c, get_varint(&c), 0x7FFFFFFF, True)
    out.value = get_span(&c, get_varint(&c), 0x7FFFFFFF, True)
    out.header_count = get_varint(&c)
    out.headers = c.p
    return not c.bad and out.header_count >= 0 and out.header_count <= c.end - c.p and (
        out.header_count > 0 or c.p == c.end
    )


cdef const uint8_t* next_header(
    const uint8_t* p, const uint8_t* end, Header* out
) noexcept nogil:
    cdef Cursor c
    cursor_init(&c, p, end - p)
    out.key = get_span(&c, get_varint(&c), 0x7FFFFFFF, False)
    out.value = get_span(&c, get_varint(&c), 0x7FFFFFFF, True)
    if c.bad:
        return NULL
    return c.p


# ---- walk

cdef enum:
    # Bytes that walk_fast may read past a record: all lengths and deltas at their longest.
    WALK_SLACK_BYTES = 32


cdef inline uint64_t walk_uvarint(const uint8_t** at) noexcept nogil:
    """Unsigned varint, unchecked, at most 5 bytes. One that is too long comes out larger than
    any length, so that no comparison lets it through."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t value = p[0]
    cdef int i
    if likely(value < 0x80):
        at[0] = p + 1
        return value
    value += (<uint64_t> p[1] << 7) - 0x80
    if likely(p[1] < 0x80):
        at[0] = p + 2
        return value
    for i in range(2, UVARINT_BYTES_MAX):
        value += (<uint64_t> p[i] - 1) << 7 * i
        if p[i] < 0x80:
            at[0] = p + i + 1
            return <uint32_t> value
    return <uint64_t> -1


cdef inline uint64_t walk_uvarlong(const uint8_t** at) noexcept nogil:
    """The same for up to 10 bytes."""
    cdef const uint8_t* p = at[0]
    cdef uint64_t value = p[0] & 0x7F
    cdef int i = 0
    while p[i] >= 0x80:
        i += 1
        if i == VARLONG_BYTES_MAX:
            return <uint64_t> -1
        value |= <uint64_t> (p[i] & 0x7F) << 7 * i
    at[0] = p + i + 1
    return value


cdef inline int64_t unzigzag(uint64_t raw) noexcept nogil:
    return <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef bint headers_ok(const uint8_t* p, const uint8_t* end, uint64_t count) noexcept nogil:
    """`count` headers fill [p, end) exactly."""
    cdef Header header
    if unlikely(count > <uint64_t> (end - p)):
        return False
    while count:
        p = next_header(p, end, &header)
        if p == NULL:
            return False
        count -= 1
    return p == end


cdef const uint8_t* walk_fast(
    const uint8_t* p, const uint8_t* end, int32_t count, Walk* w
) noexcept nogil:
    """Walk while a record ends WALK_SLACK_BYTES before the end, so that its varints can be read
    first and compared afterwards. Stops, without a verdict, at the first record that does not
    look right: walk_checked says what is wrong with it."""
    cdef const uint8_t* stop
    cdef const uint8_t* at
    cdef const uint8_t* body_end
    cdef uint64_t raw, headers, key
    cdef int64_t delta
    cdef int64_t delta_min = w.delta_min
    cdef int64_t delta_max = w.delta_max
    cdef int32_t index = w.index
    cdef int32_t keyless = w.keyless
    if end - p < WALK_SLACK_BYTES:
        return p
    stop = end - WALK_SLACK_BYTES
    while index < count and p < stop:
        at = p
        raw = walk_uvarint(&at)
        if unlikely(raw & 1 or at > stop or raw >> 1 > <uint64_t> (stop - at)):
            break
        body_end = at + (raw >> 1)
        at += 1                                # attributes: none are in use
        raw = walk_uvarlong(&at)
        if unlikely(raw == <uint64_t> -1 or walk_uvarint(&at) != <uint64_t> index << 1):
            break
        delta = unzigzag(raw)
        key = walk_uvarint(&at)
        raw = key ^ (key == 1)                # null takes no bytes
        if unlikely(raw & 1 or at > body_end or raw >> 1 > <uint64_t> (body_end - at)):
            break
        at += raw >> 1
        raw = walk_uvarint(&at)
        raw ^= raw == 1
        if unlikely(raw & 1 or at > body_end or raw >> 1 > <uint64_t> (body_end - at)):
            break
        at += raw >> 1
        headers = walk_uvarint(&at)
        if at != body_end or headers:
            if headers & 1 or at > body_end or not headers_ok(at, body_end, headers >> 1):
                break
        keyless += key == 1
        delta_min = delta if delta < delta_min else delta_min
        delta_max = delta if delta > delta_max else delta_max
        p = body_end
        index += 1
    w.index = index
    w.keyless = keyless
    w.delta_min = delta_min
    w.delta_max = delta_max
    return p


cdef const uint8_t* walk_checked(
    const uint8_t* p, const uint8_t* end, Walk* w
) noexcept nogil:
    """One record, every step compared with the end; NULL and w.code where it is wrong."""
    cdef Record record
    cdef int32_t offset_delta
    cdef int64_t delta
    if not read_record(p, end, &record, &offset_delta, &delta) or not headers_ok(
        record.headers, record.end, record.header_count
    ):
        w.code = RECORD_BAD
        return NULL
    if offset_delta != w.index:
        w.code = RECORD_BAD_OFFSET_DELTA
        return NULL
    w.keyless += record.key.n < 0
    w.delta_min = delta if delta < w.delta_min else w.delta_min
    w.delta_max = delta if delta > w.delta_max else w.delta_max
    w.index += 1
    return record.end


cdef void walk_records(const uint8_t* p, const uint8_t* end, int32_t count, Walk* w) noexcept nogil:
    w.delta_min = INT64_MAX
    w.delta_max = INT64_MIN
    w.index = 0
    w.keyless = 0
    w.code = RECORD_OK
    while True:
        p = walk_fast(p, end, count, w)
        if w.index == count:
            break
        p = walk_checked(p, end, w)
        if p == NULL:
            return
    if p != end:
        w.code = RECORD_BYTES_LEFT
