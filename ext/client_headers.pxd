"""Bytes, time and headers of one record, as Python gives them, where the builder reads them."""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport INT32_MAX, int32_t, int64_t, uint8_t

from kbroker.ext.record cimport Header
from kbroker.ext.wire cimport Slice

cdef enum:
    HEADERS_AT_HAND = 8             # more take memory of their own


cdef inline Slice bytes_slice(object given) noexcept:
    """Of bytes or None. Of what is longer than a length can tell, so much that no request takes it:
    that refuses the record."""
    cdef Slice s
    s.p = NULL
    s.n = -1
    if given is not None:
        s.p = <const uint8_t*> PyBytes_AS_STRING(given)
        s.n = <int32_t> min(PyBytes_GET_SIZE(given), INT32_MAX)
    return s


# A copy of a bytearray, a memoryview or a subclass of bytes; TypeError for anything else.
cdef object bytes_of(object given, str field)


# A topic's name as str itself, where it is a member of a StrEnum or of another subclass.
cdef str plain_name(object name)


# A record's timestamp in ms, as the caller gave it.
cdef int64_t checked_time(object timestamp_ms) except -1


cdef class HeadersIn:
    cdef Header* headers
    cdef int32_t count
    cdef Header at_hand[HEADERS_AT_HAND]
    cdef list held

    cdef int take(self, Header* out, object name, object value) except -1
