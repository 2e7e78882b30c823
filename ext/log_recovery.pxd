"""Open and close the log of a partition; recover it after a crash.

After a crash every segment from the one that holds the recovery point on is walked with the CRC of
each batch, and cut at the first that is not whole; segments behind a cut are retired. Indexes,
leader epochs and producer state come out of the same walk. What was synced is not walked again
where the index leads behind it. No batch that was acknowledged as durable lies behind a torn one:
the journal, or the flush, came first, and what the page cache lost of a segment the journal brings
back (log_append_as_is) after this.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.journal cimport Journal
from kbroker.ext.log_state cimport Log, LogConfig

ctypedef struct OpenArgs:
    const char* dir                     # copied; made when it is not there
    const char* topic                   # copied
    const uint8_t* topic_id             # 16 bytes
    int32_t partition
    const LogConfig* cfg
    int64_t log_start                   # from log-start-offset-checkpoint; 0 when there is none
    int64_t recovery_point              # from recovery-point-offset-checkpoint; 0 where none is
    int32_t clean                       # 1: the shutdown was clean, nothing is walked
    int64_t now_ms

ctypedef struct OpenReport:
    int64_t bytes_walked                # with their CRC
    int64_t bytes_cut                   # torn tail
    int32_t indexes_rebuilt
    int32_t segments_dropped

# A new log has one reference and no journal. NULL: *error is a LogError, *error_errno the system's.
cdef Log* log_open(const OpenArgs* args, OpenReport* report, int* error,
                   int* error_errno) noexcept nogil
# The log of a folder that was created just now and has no segment: nothing is read or written there
# before the first append. The caller syncs the parent directory. NULL: *error is a LogError.
cdef Log* log_create(const OpenArgs* args, int* error) noexcept nogil
# From now on appends go through the journal (NULL: through none) of the directory at that place
# among log.dirs. Before the log is served.
cdef void log_set_journal(Log* log, Journal* journal, int32_t directory) noexcept nogil
# Let go of every descriptor and mapping that no reader uses, of dirty segments too: what is synced
# later is opened for it.
cdef void log_close_files(Log* log) noexcept nogil
# Later calls on the log answer LOG_CLOSED. clean: trim, write the producer snapshot, sync, so that
# the next open needs no recovery; without `sync` the caller syncs the file system, once for all
# logs, before it says that the stop was clean. Drops no reference; reads in flight end undisturbed.
cdef int log_close(Log* log, bint clean, bint sync) noexcept nogil
