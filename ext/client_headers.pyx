"""What one record is made of (see client_headers.pxd)."""
cimport cython
from cpython.number cimport PyNumber_Index
from libc.stdlib cimport free, malloc


cdef object bytes_of(object given, str field):
    if isinstance(given, (bytes, bytearray, memoryview)):
        return bytes(given)
    raise TypeError(
        f"{field}: {type(given).__name__} is not bytes; encode it, or give the producer a"
        f" {field}_serializer"
    )


cdef str plain_name(object name):
    if type(name) is str:
        return <str> name
    if not isinstance(name, str):
        raise TypeError(f"topic: {type(name).__name__} is not str")
    return str.__str__(name)


cdef int64_t checked_time(object timestamp_ms) except -1:
    cdef int64_t found = -1
    try:
        found = PyNumber_Index(timestamp_ms)
    except TypeError:
        raise TypeError(f"timestamp_ms: {timestamp_ms!r} is no whole number of ms") from None
    except OverflowError:
        pass
    if found < 0:
        raise ValueError(f"timestamp_ms: {timestamp_ms!r} is no time in ms since 1970")
    return found


@cython.final
@cython.freelist(8)
cdef class HeadersIn:
    """given: pairs of a name and bytes or None, or a mapping of them."""

    def __cinit__(self, given: object) -> None:
        cdef int32_t i = 0
        cdef list pairs
        if isinstance(given, dict):
            pairs = list(given.items())
        elif isinstance(given, (list, tuple)):
            pairs = list(given)
        else:
            raise TypeError(
                f"headers: {type(given).__name__} is neither a dict nor a sequence of pairs"
            )
        self.held = []
        self.headers = self.at_hand
        if len(pairs) > HEADERS_AT_HAND:
            self.headers = <Header*> malloc(sizeof(Header) * <size_t> len(pairs))
            if self.headers == NULL:
                raise MemoryError
        for pair in pairs:
            if not isinstance(pair, (tuple, list)) or len(pair) != 2:
                raise TypeError(f"headers: {pair!r} is no pair of a name and a value")
            self.take(&self.headers[i], pair[0], pair[1])
            i += 1
        self.count = i

    def __dealloc__(self) -> None:
        if self.headers != self.at_hand:
            free(self.headers)

    cdef int take(self, Header* out, object name, object value) except -1:
        if isinstance(name, str):
            # Names that are not UTF-8 are read with escapes, and go back as they came.
            name = (<str> name).encode("utf-8", "surrogateescape")
        elif not isinstance(name, bytes):
            raise TypeError(f"headers: the name {name!r} is not str")
        if isinstance(value, str):
            value = (<str> value).encode()
        elif isinstance(value, (bytearray, memoryview)):
            value = bytes(value)
        elif value is not None and not isinstance(value, bytes):
            raise TypeError(
                f"headers: the value of {name.decode('utf-8', 'replace')!r} is"
                f" {type(value).__name__}, not bytes"
            )
        self.held.append((name, value))
        out.key = bytes_slice(name)
        out.value = bytes_slice(value)
        return 0
