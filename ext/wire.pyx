"""Python's face of wire.pxd: read and write one value at a time, for tests and tools."""

from libc.stdlib cimport free, malloc

from kbroker.ext.borrowed cimport Borrowed


cdef object slice_object(Slice s):
    if s.n < 0:
        return None
    return s.p[:s.n] if s.n else b""


cdef class Reader:
    """A Cursor over a buffer. Reads after an error give zeros; look at `bad`."""

    cdef Borrowed data
    cdef Cursor cursor

    def __init__(self, data: bytes | bytearray | memoryview):
        self.data = Borrowed(data)
        cursor_init(&self.cursor, self.data.p, self.data.n)

    @property
    def bad(self) -> bool:
        return self.cursor.bad != 0

    @property
    def left(self) -> int:
        """Bytes not read yet."""
        return cursor_left(&self.cursor)

    def read(self, kind: str, least: int = 1) -> object:
        """One value of the named kind; `least` is the smallest element of an array, bytes."""
        cdef Cursor* c = &self.cursor
        if kind in INTEGERS:
            return read_integer(c, kind)
        if kind in SPANS:
            return slice_object(read_span(c, kind))
        if kind in ARRAYS:
            return read_array(c, kind, least)
        if kind == "bool":
            return get_bool(c) != 0
        if kind == "uuid":
            return slice_object(get_span(c, 16, 16, False))
        if kind == "tags":
            skip_tags(c)
            return None
        raise ValueError(f"no such kind: {kind}")


INTEGERS = frozenset(
    ("int8", "int16", "uint16", "int32", "uint32", "int64", "uvarint", "varint", "varlong")
)
SPANS = frozenset([
    f"{compact}{nullable}{kind}"
    for compact in ("", "compact_") for nullable in ("", "nullable_")
    for kind in ("string", "bytes")
])
ARRAYS = frozenset(("array", "nullable_array", "compact_array", "compact_nullable_array"))


cdef object read_integer(Cursor* c, str kind):
    if kind == "int8":
        return get_i8(c)
    if kind == "int16":
        return get_i16(c)
    if kind == "uint16":
        return get_u16(c)
    if kind == "int32":
        return get_i32(c)
    if kind == "uint32":
        return get_u32(c)
    if kind == "int64":
        return get_i64(c)
    if kind == "uvarint":
        return get_uvarint(c)
    if kind == "varint":
        return get_varint(c)
    return get_varlong(c)


cdef Slice read_span(Cursor* c, str kind):
    if kind == "string":
        return get_string(c)
    if kind == "nullable_string":
        return get_nullable_string(c)
    if kind == "compact_string":
        return get_compact_string(c)
    if kind == "compact_nullable_string":
        return get_compact_nullable_string(c)
    if kind == "bytes":
        return get_bytes(c)
    if kind == "nullable_bytes":
        return get_nullable_bytes(c)
    if kind == "compact_bytes":
        return get_compact_bytes(c)
    return get_compact_nullable_bytes(c)


cdef int32_t read_array(Cursor* c, str kind, size_t least):
    if kind == "array":
        return get_array(c, least)
    if kind == "nullable_array":
        return get_nullable_array(c, least)
    if kind == "compact_array":
        return get_compact_array(c, least)
    return get_compact_nullable_array(c, least)


def write(kind: str, value: object, room: int = 65536) -> bytes | None:
    """The bytes of one value, or None where `room` bytes are too few or it does not fit."""
    cdef Writer w
    cdef uint8_t* memory = <uint8_t*> malloc(room if room else 1)
    if memory == NULL:
        raise MemoryError
    try:
        writer_init(&w, memory, room)
        if kind in SPANS:
            write_span(&w, kind.replace("nullable_", ""), value)
        else:
            write_integer(&w, kind, value)
        return None if w.full else memory[:w.p - memory]
    finally:
        free(memory)


cdef int write_span(Writer* w, str kind, object value) except -1:
    cdef const uint8_t* p = NULL
    cdef int32_t n = -1
    cdef bytes data = value
    if data is not None:
        p = <const uint8_t*> data
        n = len(data)
    if kind == "string":
        put_string(w, p, n)
    elif kind == "compact_string":
        put_compact_string(w, p, n)
    elif kind == "bytes":
        put_bytes(w, p, n)
    else:
        put_compact_bytes(w, p, n)
    return 0


cdef int write_integer(Writer* w, str kind, object value) except -1:
    if kind == "int8":
        put_i8(w, value)
    elif kind == "bool":
        put_bool(w, value)
    elif kind == "int16":
        put_i16(w, value)
    elif kind == "int32":
        put_i32(w, value)
    elif kind == "int64":
        put_i64(w, value)
    elif kind == "uvarint":
        put_uvarint(w, value)
    elif kind == "varint":
        put_varint(w, value)
    elif kind == "varlong":
        put_varlong(w, value)
    elif kind == "array":
        put_array(w, -1 if value is None else value)
    elif kind == "compact_array":
        put_compact_array(w, -1 if value is None else value)
    elif kind == "tags":
        put_no_tags(w)
    else:
        raise ValueError(f"no such kind: {kind}")
    return 0
