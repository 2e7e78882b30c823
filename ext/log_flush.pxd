"""Put a log on disk: fdatasync of its segments, without holding the log.

Everything here is thread-safe unless told otherwise. A failed sync takes the log offline: the
kernel has dropped what it could not write, and another sync would say that all is well. A log that
is deleted during its flush is LOG_CLOSED, where only its names are gone. A flush that finds no
descriptor, or no memory for one, is put off: all that it had in hand is dirty again, and it answers
LOG_STORAGE_ERROR or LOG_NO_MEMORY with the log as usable as before.
"""
from libc.stdint cimport int64_t

from kbroker.ext.log_state cimport Log

# Sync all that was appended so far; *recovery_point is set. One flush at a time: a second caller
# waits for the first and then syncs what came since.
cdef int log_flush(Log* log, int64_t now_ms, int64_t* recovery_point) noexcept nogil
# A flush is due: flush.messages, flush.ms, a rolled segment not synced yet, or bytes not synced in
# a log without appends for idle_ms.
cdef bint log_flush_due(Log* log, int64_t now_ms, int64_t idle_ms) noexcept nogil
# The lock is held (a log that is being closed): the same, under it; without `sync` what has to be
# written is written, and the caller syncs the file system.
cdef int log_sync_all(Log* log, bint sync) noexcept nogil
