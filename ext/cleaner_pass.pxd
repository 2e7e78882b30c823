"""One cleaning of a log: map the keys of its dirty part, then write its segments anew, in groups.

    dirty       [first_dirty, first_uncleanable): what no cleaning has seen. Its keys are mapped, as
                many as the map takes: [first_dirty, end).
    cleaned     all segments that begin below `end`: a record goes when the map has a later offset
                for its key. Neighbours that are small together become one segment.

The active segment, and whatever is not stable, lies beyond. A cleaned segment is whole on disk
before it replaces anything, and it is in place on disk before the next group begins:

    1. flush: what is to be cleaned, and what supersedes it, is on disk; recovery point behind it
    2. write and sync BASE.{log,index,timeindex,txnindex}.cleaned
    3. rename each to .swap, .log first; sync the folder. From here on recovery completes the swap
    4. under the lock of the log: old files to .deleted, the new ones lose .swap
    5. sync the folder

A crash before 3 is over leaves a .cleaned file, which makes what is .swap already void. After a
crash the journal may hold batches that were compacted away. They lie below the log's end, and are
passed over: the active segment is on disk since step 1, and recovery does not end before it.

Concurrency. One thread cleans a log at a time. Segments are held by reference while they are read;
lock order as in log_state: flush_lock (no flush may sync files by names that change), then lock.
Readers of an old segment keep its descriptor (see log_read for where they go on). Retention, a
deletion or a truncation meanwhile makes step 4 stand back: PASS_REPLACED, nothing has changed.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.cleaner_filter cimport Filter
from kbroker.ext.cleaner_output cimport Output
from kbroker.ext.log_state cimport Log, LogConfig
from kbroker.ext.posix cimport pthread_mutex_t

cdef enum:
    PASS_STOPPED = -102                 # *stop was set
    PASS_REPLACED = -103                # segments went away meanwhile
    PASS_NO_CALLER = -104               # `ask` failed

ctypedef struct Throttle:               # shared by the threads
    pthread_mutex_t lock
    double bytes_per_second
    int64_t free_ns                     # when what was granted so far is used up
    int32_t rates                       # atomic: how many there were; another one ends all naps

ctypedef struct Survey:
    int64_t first_dirty
    int64_t first_uncleanable           # base offset of a segment
    int64_t clean_bytes                 # of segments that begin below first_dirty
    int64_t cleanable_bytes             # of those behind, below first_uncleanable
    int64_t overdue_ms                  # how long max.compaction.lag.ms has been over
    int32_t reset                       # 1: the checkpoint lay below log start, 2: beyond the end

# So many bytes are about to be written. It may wait for room on the disk; 0 to go on.
ctypedef int (*Ask)(void* asker, int64_t bytes) noexcept nogil

ctypedef struct Pass:
    Log* log
    LogConfig cfg                       # the log's, as it was at the beginning
    Filter filter
    Output output
    Throttle* throttle
    const int32_t* stop                 # atomic
    Ask ask                             # before each group
    void* asker
    int64_t io_bytes                    # read at a time
    int64_t map_slots
    double load_factor
    int64_t end_offset                  # result: one beyond what was mapped
    int32_t segments_before
    int32_t segments_after
    int error                           # errno behind LOG_STORAGE_ERROR

cdef void throttle_init(Throttle* t) noexcept nogil
# From now on, for who waits, too: what was taken at another rate is forgiven.
cdef void throttle_set_rate(Throttle* t, double bytes_per_second) noexcept nogil
# What of a log could be cleaned. checkpoint: first offset that no cleaning has seen, -1 for none.
# LOG_OK or an error of the log.
cdef int pass_survey(Log* log, int64_t checkpoint, int64_t now_ms, Survey* out) noexcept nogil
# Clean it: LOG_OK, an error of the log, FILTER_NO_CODEC, or PASS_*. What was swapped in so far
# stays.
cdef int pass_clean(Pass* c, int64_t first_dirty, int64_t first_uncleanable) noexcept nogil
cdef void pass_free(Pass* c) noexcept nogil
