"""Copies of a log's tables for Python.

The rows are copied under the log's lock without the GIL, and become Python objects after it: an
allocation of Python's may run a finalizer, and that may wait for the same lock.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log

ctypedef struct Rows:
    int64_t* cells                      # NULL: no memory; freed by rows_take
    int32_t columns
    int32_t count

# LOG_OK, LOG_HELD or LOG_NO_MEMORY; `out` is to be taken after LOG_OK only.
# (base offset, bytes, largest timestamp in ms or -1) of each segment.
cdef int log_list_segments(Log* log, Rows* out) noexcept nogil
# (base offset) of the last `count` segments that were retired.
cdef int log_list_retired(Log* log, int32_t count, Rows* out) noexcept nogil
# (epoch, start offset) of each leader epoch.
cdef int log_list_epochs(Log* log, Rows* out) noexcept nogil
# (producer id, epoch, last sequence, last timestamp, coordinator epoch, first offset of its
# transaction or -1) of each producer.
cdef int log_list_producers(Log* log, Rows* out) noexcept nogil
# The rows as tuples; frees them.
cdef list rows_take(Rows* rows)
