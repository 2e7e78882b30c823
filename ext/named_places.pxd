"""The partitions that a request has named so far, each once.

Topics are told apart by name or by id, whichever the request has; partitions by the number of
their topic and their own. Not thread-safe; one request's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.byte_table cimport ByteTable

ctypedef struct NamedPlaces:
    ByteTable topics
    ByteTable places

cdef void named_init(NamedPlaces* named) noexcept nogil
cdef void named_free(NamedPlaces* named) noexcept nogil
# The number of the topic, of the partition among all: the next one where it is new. < 0: no memory.
cdef int64_t named_topic(NamedPlaces* named, const uint8_t* p, size_t n) noexcept nogil
cdef int64_t named_partition(NamedPlaces* named, int64_t topic, int32_t partition) noexcept nogil
