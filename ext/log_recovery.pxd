"""Open and close the log of a partition; recover it after a crash."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.journal cimport Journal
from kbroker.ext.log_state cimport Log, LogConfig

ctypedef struct OpenArgs:
    const char* dir                     # copied
    const char* topic                   # copied
    const uint8_t* topic_id             # 16 bytes
    int32_t partition
    const LogConfig* cfg
    int64_t log_start                   # from log-start-offset-checkpoint; 0 when there is none
    # from recovery-point-offset-checkpoint; 0 when there is none
    int64_t recovery_point
    int32_t clean                       # 1: the shutdown was clean, nothing is walked
    int64_t now_ms
    Journal* journal                    # NULL: page-cache; may be set later by log_set_journal

ctypedef struct OpenReport:
    int64_t bytes_walked
    int64_t bytes_cut                   # torn tail
    int32_t indexes_rebuilt
    int32_t segments_dropped

# A new log has one reference. NULL: *error is a LogError and *error_errno the system's.
cdef Log* log_open(const OpenArgs* args, OpenReport* report, int* error,
                   int* error_errno) noexcept nogil
# From now on appends go through the journal (NULL: through none). Before the log is served.
cdef void log_set_journal(Log* log, Journal* journal) noexcept nogil
# Flush, trim, snapshot the producers when clean; later calls on the log answer LOG_CLOSED. Drops
# no reference.
cdef int log_close(Log* log, bint clean) noexcept nogil
