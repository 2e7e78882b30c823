"""Record: what a consumer gives its user, without a copy of what the record holds.

A Record points into the memory that its batch lies in and holds it through its Source; key, value
and headers become Python objects when somebody asks. Records of one batch share one Source.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_counted cimport Memory
from kbroker.ext.client_stream cimport Stream
from kbroker.ext.record cimport Record as RecordStruct

cdef class Source:
    """Where records come from: a batch of a partition."""
    cdef Memory* memory                 # referenced
    cdef object topic
    cdef object partition
    cdef int32_t leader_epoch
    cdef bint log_append_time

cdef class Record:
    cdef Source source
    cdef object made_key                # NULL-like None until asked for, then the object
    cdef object made_value
    cdef object made_headers
    cdef const uint8_t* key_p
    cdef const uint8_t* value_p
    cdef const uint8_t* headers_p
    cdef const uint8_t* end
    cdef int32_t key_n                  # -1: null
    cdef int32_t value_n
    cdef int32_t header_count
    cdef readonly int64_t offset
    cdef readonly int64_t timestamp

# The Source of the batch that a stream has open.
cdef Source source_of(Stream* s, object topic, object partition)
cdef Record record_of(Source source, const RecordStruct* r)
# stream_batch, with Python's libraries where this machine lacks a codec's: STREAM_RECORDS or
# STREAM_END. Raises FetchedBatchError.
cdef int open_next(Stream* s, object topic, object partition) except -1
# At most `most` records of the open batch appended to `out`: how many, 0 at its end. Raises
# FetchedBatchError where the first of them cannot be read.
cdef Py_ssize_t records_take(Stream* s, Source source, list out, Py_ssize_t most) except -1
