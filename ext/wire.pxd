"""Cursor and Writer: Kafka's primitive types on a span of bytes, with an end pointer.

Format: the "protocol primitive types" of Kafka (big endian integers; strings and bytes with
an int16, int32 or unsigned varint length; the "compact" forms of KIP-482 count one more than
the length and say null by 0; varint and varlong are zigzag LEB128).

Both structs borrow their memory: whoever fills them keeps the span alive.
Errors stick. After the first read past the end (or of a length that cannot be) `bad` is 1,
the cursor stands at its end and every later read gives 0 or an empty Slice; one look at
`bad` after a message is enough. A Writer that runs out of room sets `full` and writes
nothing more. Nothing here takes a lock, allocates or touches Python.
"""
from libc.stdint cimport (
    int8_t, int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t,
)
from libc.string cimport memcpy

from kbroker.ext.endian cimport (
    load_i16, load_i32, load_i64, store_be16, store_be32, store_be64,
)


cdef extern from *:
    int __builtin_clzll(unsigned long long) noexcept nogil
    bint likely(bint) noexcept nogil
    bint unlikely(bint) noexcept nogil


cdef enum:
    ARRAY_ELEMENTS_MAX = 1000000     # more elements than this in one array: refused
    TAGGED_FIELDS_MAX = 10000        # more tagged fields than this in one struct: refused
    STRING_BYTES_MAX = 32767         # Kafka's own bound of a string, compact or not
    TOPIC_NAME_BYTES_MAX = 249       # Kafka's own bound of a topic's name
    # Of one Produce, Fetch or ListOffsets, all topics together. What is allocated for one is more
    # than the few bytes that name it, so their number is bounded beside the request's length.
    REQUEST_PARTITIONS_MAX = 100000
    UVARINT_BYTES_MAX = 5
    VARLONG_BYTES_MAX = 10


ctypedef struct Cursor:
    const uint8_t* p      # next byte to read
    const uint8_t* end    # one past the last byte
    int bad               # 1 after the first error, for good


ctypedef struct Slice:
    const uint8_t* p      # borrowed from the cursor's span; NULL when n <= 0
    int32_t n             # bytes; -1 for null


ctypedef struct Writer:
    uint8_t* p            # next byte to write
    uint8_t* end          # one past the last byte of room
    int full              # 1 after the first write that did not fit, for good


# ---- fixed width stores, unchecked: the caller has compared with the end. Loads: ext/endian.

cdef inline void store_i16(uint8_t* p, int16_t value) noexcept nogil:
    store_be16(p, <uint16_t> value)


cdef inline void store_i32(uint8_t* p, int32_t value) noexcept nogil:
    store_be32(p, <uint32_t> value)


cdef inline void store_i64(uint8_t* p, int64_t value) noexcept nogil:
    store_be64(p, <uint64_t> value)


# ---- Cursor

cdef inline void cursor_init(Cursor* c, const uint8_t* p, size_t n) noexcept nogil:
    c.p = p
    c.end = p + n
    c.bad = 0


cdef inline void cursor_fail(Cursor* c) noexcept nogil:
    c.bad = 1
    c.p = c.end


cdef inline size_t cursor_left(const Cursor* c) noexcept nogil:
    return <size_t> (c.end - c.p)


cdef inline const uint8_t* take(Cursor* c, size_t n) noexcept nogil:
    """The next n bytes, or NULL (and bad) when fewer are left. n = 0 gives the position."""
    cdef const uint8_t* at = c.p
    if unlikely(n > <size_t> (c.end - at)):
        cursor_fail(c)
        return NULL
    c.p = at + n
    return at


cdef inline void skip(Cursor* c, size_t n) noexcept nogil:
    take(c, n)


cdef inline int8_t get_i8(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 1)
    return <int8_t> at[0] if at != NULL else 0


cdef inline bint get_bool(Cursor* c) noexcept nogil:
    return get_i8(c) != 0


cdef inline int16_t get_i16(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 2)
    return load_i16(at) if at != NULL else 0


cdef inline uint16_t get_u16(Cursor* c) noexcept nogil:
    return <uint16_t> get_i16(c)


cdef inline int32_t get_i32(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 4)
    return load_i32(at) if at != NULL else 0


cdef inline uint32_t get_u32(Cursor* c) noexcept nogil:
    return <uint32_t> get_i32(c)


cdef inline int64_t get_i64(Cursor* c) noexcept nogil:
    cdef const uint8_t* at = take(c, 8)
    return load_i64(at) if at != NULL else 0


cdef inline const uint8_t* get_uuid(Cursor* c) noexcept nogil:
    """16 bytes in network order, or NULL (and bad)."""
    return take(c, 16)


cdef inline uint64_t get_leb128(Cursor* c, int bytes_max) noexcept nogil:
    """Unsigned LEB128 of at most bytes_max bytes. As in Kafka, bits beyond the width of the
    type are dropped and a longer run of continuation bytes is an error."""
    cdef const uint8_t* at = c.p
    cdef uint64_t value = 0
    cdef int shift = 0
    cdef uint8_t byte
    while at < c.end and shift < 7 * bytes_max:
        byte = at[0]
        at += 1
        value |= <uint64_t> (byte & 0x7F) << shift
        if byte < 0x80:
            c.p = at
            return value
        shift += 7
    cursor_fail(c)
    return 0


cdef inline uint32_t get_uvarint(Cursor* c) noexcept nogil:
    cdef uint32_t value
    if likely(c.p < c.end and c.p[0] < 0x80):
        value = c.p[0]
        c.p += 1
        return value
    return <uint32_t> get_leb128(c, UVARINT_BYTES_MAX)


cdef inline int32_t get_varint(Cursor* c) noexcept nogil:
    cdef uint32_t raw = get_uvarint(c)
    return <int32_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef inline int64_t get_varlong(Cursor* c) noexcept nogil:
    cdef uint64_t raw = get_leb128(c, VARLONG_BYTES_MAX)
    return <int64_t> ((raw >> 1) ^ (0 - (raw & 1)))


cdef inline Slice get_span(Cursor* c, int64_t n, int64_t most, bint nullable) noexcept nogil:
    """n bytes as a Slice. n = -1 is null where that is allowed; any other n below 0, over
    `most` or past the end is an error. After an error the Slice is empty (n = 0)."""
    cdef Slice s
    s.p = NULL
    s.n = 0
    if n == -1 and nullable:
        s.n = -1
    elif unlikely(n < 0 or n > most or c.bad):
        cursor_fail(c)
    else:
        s.p = take(c, <size_t> n)
        s.n = <int32_t> n if s.p != NULL else 0
    return s


cdef inline Slice get_string(Cursor* c) noexcept nogil:
    return get_span(c, get_i16(c), STRING_BYTES_MAX, False)


cdef inline Slice get_nullable_string(Cursor* c) noexcept nogil:
    return get_span(c, get_i16(c), STRING_BYTES_MAX, True)


cdef inline Slice get_compact_string(Cursor* c) noexcept nogil:
    return get_span(c, <int64_t> get_uvarint(c) - 1, STRING_BYTES_MAX, False)


cdef inline Slice get_compact_nullable_string(Cursor* c) noexcept nogil:
    return get_span(c, <int64_t> get_uvarint(c) - 1, STRING_BYTES_MAX, True)


cdef inline Slice get_bytes(Cursor* c) noexcept nogil:
    return get_span(c, get_i32(c), 0x7FFFFFFF, False)


cdef inline Slice get_nullable_bytes(Cursor* c) noexcept nogil:
    return get_span(c, get_i32(c), 0x7FFFFFFF, True)


cdef inline Slice get_compact_bytes(Cursor* c) noexcept nogil:
    return get_span(c, <int64_t> get_uvarint(c) - 1, 0x7FFFFFFF, False)


cdef inline Slice get_compact_nullable_bytes(Cursor* c) noexcept nogil:
    return get_span(c, <int64_t> get_uvarint(c) - 1, 0x7FFFFFFF, True)


cdef inline int32_t array_count(
    Cursor* c, int64_t n, size_t element_bytes_min, bint nullable
) noexcept nogil:
    """n as a number of elements that the rest of the span can hold at all; -1 for null."""
    if n == -1 and nullable and not c.bad:
        return -1
    if unlikely(
        n < 0 or n > ARRAY_ELEMENTS_MAX or <size_t> n * element_bytes_min > cursor_left(c)
    ):
        cursor_fail(c)
        return 0
    return <int32_t> n


cdef inline int32_t get_array(Cursor* c, size_t element_bytes_min) noexcept nogil:
    return array_count(c, get_i32(c), element_bytes_min, False)


cdef inline int32_t get_nullable_array(Cursor* c, size_t element_bytes_min) noexcept nogil:
    return array_count(c, get_i32(c), element_bytes_min, True)


cdef inline int32_t get_compact_array(Cursor* c, size_t element_bytes_min) noexcept nogil:
    return array_count(c, <int64_t> get_uvarint(c) - 1, element_bytes_min, False)


cdef inline int32_t get_compact_nullable_array(
    Cursor* c, size_t element_bytes_min
) noexcept nogil:
    return array_count(c, <int64_t> get_uvarint(c) - 1, element_bytes_min, True)


cdef inline int32_t get_count(Cursor* c, bint flexible, size_t element_bytes_min) noexcept nogil:
    """Of an array in the form of the message's version: compact where it is flexible."""
    if flexible:
        return get_compact_array(c, element_bytes_min)
    return get_array(c, element_bytes_min)


cdef inline uint32_t get_tag_count(Cursor* c) noexcept nogil:
    """Number of tagged fields that follow; each is a tag, a size and size bytes."""
    cdef uint32_t n = get_uvarint(c)
    if unlikely(n > TAGGED_FIELDS_MAX or n * <size_t> 2 > cursor_left(c)):
        cursor_fail(c)
        return 0
    return n


cdef inline void skip_tags(Cursor* c) noexcept nogil:
    cdef uint32_t _i
    cdef uint32_t n = get_tag_count(c)
    for _i in range(n):
        get_uvarint(c)
        skip(c, get_uvarint(c))


# ---- Writer

cdef inline void writer_init(Writer* w, uint8_t* p, size_t room) noexcept nogil:
    w.p = p
    w.end = p + room
    w.full = 0


cdef inline size_t writer_left(const Writer* w) noexcept nogil:
    return <size_t> (w.end - w.p)


cdef inline uint8_t* reserve(Writer* w, size_t n) noexcept nogil:
    """Room for n bytes, to be filled (or patched later) by the caller; NULL when full."""
    cdef uint8_t* at = w.p
    if unlikely(w.full or n > <size_t> (w.end - at)):
        w.full = 1
        return NULL
    w.p = at + n
    return at


cdef inline void put_i8(Writer* w, int8_t value) noexcept nogil:
    cdef uint8_t* at = reserve(w, 1)
    if at != NULL:
        at[0] = <uint8_t> value


cdef inline void put_bool(Writer* w, bint value) noexcept nogil:
    put_i8(w, 1 if value else 0)


cdef inline void put_i16(Writer* w, int16_t value) noexcept nogil:
    cdef uint8_t* at = reserve(w, 2)
    if at != NULL:
        store_i16(at, value)


cdef inline void put_i32(Writer* w, int32_t value) noexcept nogil:
    cdef uint8_t* at = reserve(w, 4)
    if at != NULL:
        store_i32(at, value)


cdef inline void put_i64(Writer* w, int64_t value) noexcept nogil:
    cdef uint8_t* at = reserve(w, 8)
    if at != NULL:
        store_i64(at, value)


cdef inline void put_raw(Writer* w, const void* p, size_t n) noexcept nogil:
    cdef uint8_t* at = reserve(w, n)
    if at != NULL and n:
        memcpy(at, p, n)


cdef inline int uvarlong_size(uint64_t value) noexcept nogil:
    """Bytes that the unsigned LEB128 of value takes, 1 to 10."""
    return (70 - __builtin_clzll(value | 1)) // 7


cdef inline uint64_t zigzag(int64_t value) noexcept nogil:
    return (<uint64_t> value << 1) ^ <uint64_t> (value >> 63)


cdef inline int varlong_size(int64_t value) noexcept nogil:
    """Bytes that value takes as a varlong; a varint of the same value takes as many."""
    return uvarlong_size(zigzag(value))


cdef inline uint8_t* store_uvarlong(uint8_t* p, uint64_t value) noexcept nogil:
    """Unchecked: the caller has uvarlong_size(value) bytes of room. Returns the end."""
    while value >= 0x80:
        p[0] = <uint8_t> (value | 0x80)
        p += 1
        value >>= 7
    p[0] = <uint8_t> value
    return p + 1


cdef inline void put_uvarlong(Writer* w, uint64_t value) noexcept nogil:
    cdef uint8_t* at = reserve(w, uvarlong_size(value))
    if at != NULL:
        store_uvarlong(at, value)


cdef inline void put_uvarint(Writer* w, uint32_t value) noexcept nogil:
    put_uvarlong(w, value)


cdef inline void put_varint(Writer* w, int32_t value) noexcept nogil:
    put_uvarlong(w, zigzag(value))


cdef inline void put_varlong(Writer* w, int64_t value) noexcept nogil:
    put_uvarlong(w, zigzag(value))


cdef inline void put_string(Writer* w, const uint8_t* p, int32_t n) noexcept nogil:
    """n = -1 writes null; n over 32767 does not fit the type and counts as full."""
    if unlikely(n > STRING_BYTES_MAX or n < -1):
        w.full = 1
        return
    put_i16(w, <int16_t> n)
    if n > 0:
        put_raw(w, p, n)


cdef inline void put_compact_string(Writer* w, const uint8_t* p, int32_t n) noexcept nogil:
    if unlikely(n > STRING_BYTES_MAX or n < -1):
        w.full = 1
        return
    put_uvarint(w, <uint32_t> (n + 1))
    if n > 0:
        put_raw(w, p, n)


cdef inline void put_bytes(Writer* w, const uint8_t* p, int32_t n) noexcept nogil:
    put_i32(w, n)
    if n > 0:
        put_raw(w, p, n)


cdef inline void put_compact_bytes(Writer* w, const uint8_t* p, int32_t n) noexcept nogil:
    put_uvarint(w, <uint32_t> n + 1)
    if n > 0:
        put_raw(w, p, n)


cdef inline void put_array(Writer* w, int32_t n) noexcept nogil:
    """The count that stands before the elements; -1 for null."""
    put_i32(w, n)


cdef inline void put_compact_array(Writer* w, int32_t n) noexcept nogil:
    put_uvarint(w, <uint32_t> n + 1)


cdef inline void put_count(Writer* w, bint flexible, int32_t n) noexcept nogil:
    if flexible:
        put_compact_array(w, n)
    else:
        put_array(w, n)


cdef inline void put_no_tags(Writer* w) noexcept nogil:
    """The empty tagged field section that ends every flexible struct."""
    put_i8(w, 0)
