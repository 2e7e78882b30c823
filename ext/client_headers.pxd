"""The headers of one record, as Python gives them, where the builder reads them."""
from libc.stdint cimport int32_t

from kbroker.ext.record cimport Header

cdef enum:
    HEADERS_AT_HAND = 8             # more take memory of their own


cdef class HeadersIn:
    cdef Header* headers
    cdef int32_t count
    cdef Header at_hand[HEADERS_AT_HAND]
    cdef list held

    cdef int take(self, Header* out, object name, object value) except -1
