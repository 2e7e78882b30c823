"""Append to the log of a partition; move its high watermark. Everything here is thread-safe."""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.log_state cimport Log
from kbroker.ext.producers cimport Terms
from kbroker.ext.segment cimport Segment

ctypedef struct AppendResult:
    int64_t base_offset
    int64_t last_offset
    int64_t log_append_time             # ms; -1 when the topic keeps CreateTime
    int64_t log_start
    int64_t leo
    int64_t end_offset                  # last_offset + 1: acks=all waits until hw reaches it
    int32_t hw_advanced                 # 1: wake the readers (page-cache durability)

# Leader append of one validated batch, which is patched in place: base offset, leader epoch, and
# the timestamps where message.timestamp.type or `info` asks for it. LOG_OK, LOG_STALL, or
# LOG_DUPLICATE (with the offsets of that time), or an error; only LOG_OK has changed anything.
cdef int log_append(Log* log, uint8_t* batch, const BatchInfo* info, int64_t now_ms,
                    AppendResult* out) noexcept nogil
# The same on other terms: of what the broker's own coordinators write (ORIGIN_COORDINATOR: no
# sequences, control batches pass), or of a client's batch that opens a transaction.
cdef int log_append_on(Log* log, const Terms* terms, uint8_t* batch, const BatchInfo* info,
                       int64_t now_ms, AppendResult* out) noexcept nogil
# Append a batch that has its offsets and leader epoch (journal replay, replication); it is durable
# already, so the high watermark follows. Below leo: skipped, LOG_OK. Beyond: out of range.
cdef int log_append_as_is(Log* log, const uint8_t* batch, const BatchInfo* info,
                          int64_t now_ms) noexcept nogil
# Everything below end_offset is on disk: 1 when hw moved. Wake-ups are the caller's.
cdef int log_advance_hw(Log* log, int64_t end_offset) noexcept nogil

# The lock is held: a new active segment at leo. LOG_OK or an error with nothing changed.
cdef int log_roll_locked(Log* log, int64_t now_ms) noexcept nogil
# What is taken off segment.ms for one segment, so that partitions do not roll together.
cdef int64_t log_roll_jitter(Log* log) noexcept nogil
cdef Segment* log_create_segment(Log* log, int64_t base_offset, int64_t now_ms,
                                 int* error) noexcept nogil
