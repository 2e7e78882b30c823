"""Append to the log of a partition; move its high watermark."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.log_state cimport Log

ctypedef struct AppendResult:
    int64_t base_offset
    int64_t last_offset
    int64_t log_append_time             # ms; -1 when the topic keeps CreateTime
    int64_t log_start
    int64_t leo
    int64_t end_offset                  # last_offset + 1: acks=all waits until hw reaches it
    int32_t hw_advanced                 # 1: wake the readers (page-cache durability)

# Leader append of one validated batch; patches `batch` in place. Thread-safe.
cdef int log_append(Log* log, uint8_t* batch, const BatchInfo* info, int64_t now_ms,
                    AppendResult* out) noexcept nogil
# The same for what the broker's own coordinators write (ORIGIN_COORDINATOR: no sequences; control
# batches pass).
cdef int log_append_from(Log* log, int origin, uint8_t* batch, const BatchInfo* info,
                         int64_t now_ms, AppendResult* out) noexcept nogil
# Append a batch that has its offsets already (journal replay). Below leo: skipped, 0. Beyond it:
# LOG_OFFSET_OUT_OF_RANGE.
cdef int log_append_as_is(Log* log, const uint8_t* batch, const BatchInfo* info,
                          int64_t now_ms) noexcept nogil
# Everything below end_offset is on disk: 1 when hw (and lso) moved. Thread-safe.
cdef int log_advance_hw(Log* log, int64_t end_offset) noexcept nogil
