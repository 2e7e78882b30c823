"""Roll, flush, retention, trimming, idling and deletion of a log's segments: what the maintenance
threads call."""

from libc.stdint cimport int32_t, int64_t

from kbroker.ext.log_state cimport Log, LogConfig

cdef int log_set_start(Log* log, int64_t offset) noexcept nogil        # DeleteRecords; up to hw
# no-op when the active segment is empty
cdef int log_roll(Log* log, int64_t now_ms) noexcept nogil
# fdatasync what is dirty (outside the lock); *recovery_point is set. Any sync error takes the log
# offline.
cdef int log_flush(Log* log, int64_t now_ms, int64_t* recovery_point) noexcept nogil
# Retire what retention.ms, retention.bytes and log start allow: number of segments renamed to
# .deleted, or an error.
cdef int log_delete_old(Log* log, int64_t now_ms) noexcept nogil
# Unlink retired files whose file.delete.delay.ms is over (all: whatever their age): how many.
cdef int log_unlink_deleted(Log* log, int64_t now_ms, bint all) noexcept nogil
cdef int log_truncate_to(Log* log, int64_t offset) noexcept nogil
# close fds, unmap: how many let go
cdef int log_idle(Log* log, int64_t now_ms, int64_t idle_ms) noexcept nogil
cdef void log_configure(Log* log, const LogConfig* cfg) noexcept nogil
cdef int64_t log_size(Log* log) noexcept nogil                          # bytes of all segments
# topic deleted: appends and reads answer LOG_CLOSED
cdef int log_mark_deleted(Log* log) noexcept nogil
cdef int log_expire_producers(Log* log, int64_t now_ms) noexcept nogil
