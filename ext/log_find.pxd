"""Find offsets in the log of a partition by time. Everything is thread-safe.

Searches by time may read cold pages and decompress a batch: they belong on an I/O thread.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log

ctypedef struct TimestampOffset:
    int64_t offset                      # -1: nothing found
    int64_t timestamp                   # ms
    int32_t leader_epoch                # of the batch; -1: none

# First record at or behind log start whose timestamp is at least `timestamp`. Kafka looks into one
# segment alone, and finds nothing where what that segment has of the time was deleted.
cdef int log_offset_for_timestamp(Log* log, int64_t timestamp, TimestampOffset* out) noexcept nogil
# First record with the largest timestamp of all.
cdef int log_offset_of_max_timestamp(Log* log, TimestampOffset* out) noexcept nogil
