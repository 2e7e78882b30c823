"""What maintenance does to a log: roll, retention, trimming, truncation, letting go of
files. Everything is thread-safe unless told otherwise.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log, LogConfig

cdef int log_roll(Log* log, int64_t now_ms) noexcept nogil     # nothing where the active is empty
# DeleteRecords: LOG_OFFSET_OUT_OF_RANGE beyond hw; nothing at or below log start.
cdef int log_set_start(Log* log, int64_t offset) noexcept nogil
# Retire what retention.ms, retention.bytes and log start allow: how many segments, or an error.
cdef int log_delete_old(Log* log, int64_t now_ms) noexcept nogil
# Unlink retired files whose file.delete.delay.ms is over (all: whatever their age): how many.
cdef int log_unlink_deleted(Log* log, int64_t now_ms, bint all) noexcept nogil
# Drop records from `offset` on. Not for a log with a journal, which would bring them back after a
# crash.
cdef int log_truncate_to(Log* log, int64_t offset, int64_t now_ms) noexcept nogil
# Close files and mappings of segments not used for idle_ms, with nothing unsynced: how many.
cdef int log_idle(Log* log, int64_t now_ms, int64_t idle_ms) noexcept nogil
cdef int log_expire_producers(Log* log, int64_t now_ms) noexcept nogil     # how many
cdef void log_configure(Log* log, const LogConfig* cfg) noexcept nogil
cdef int64_t log_size(Log* log) noexcept nogil                 # bytes of all segments
# The topic is deleted: appends and reads answer LOG_CLOSED from now on, and no file is touched by
# name any more. To be called before the folder is renamed.
cdef int log_mark_deleted(Log* log) noexcept nogil
