"""The log of one partition: what it holds, its errors, settings, watermarks and references.

Concurrency contract. `lock` guards everything but what is named otherwise. `log_start`, `leo`, `hw`
and `lso` are written under the lock and may be loaded without it (`log_watermarks`). A file is
written by appends under the lock, read and synced without it by whoever holds a reference to its
segment. Nothing here calls out (to purgatory, to a flusher) while it holds the lock, but for
journal_reserve, journal_commit and journal_cancel. Lock order: flush_lock, lock, the journal's.
`watch_lock` is purgatory's and is never taken here.

Errors of the disk. No room (ENOSPC, EDQUOT, EFBIG) or no descriptor (EMFILE, ENFILE): what was
begun is taken back and the append fails with LOG_STORAGE_ERROR; the next one tries again. A flush
without descriptors or memory is put off. Anything else, and any failed sync, takes the log offline
for good: what the kernel has dropped must not be taken for written.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.epochs cimport EpochCache
from kbroker.ext.journal cimport Journal, JournalOwner
from kbroker.ext.open_files cimport FileOwner
from kbroker.ext.posix cimport pthread_mutex_t
from kbroker.ext.producers cimport Producers
from kbroker.ext.segment cimport IndexLimits, Segment

cdef enum:
    DIRECTORIES_MAX = 64                # of log.dirs: a set of them is one word

cdef enum LogError:
    LOG_OK = 0
    LOG_STALL = 1                       # the journal has no room: nothing has changed, try later
    LOG_DUPLICATE = 2                   # appended before: AppendResult holds the offsets of then
    LOG_OUT_OF_ORDER_SEQUENCE = -1
    LOG_INVALID_PRODUCER_EPOCH = -2
    LOG_OFFSET_OUT_OF_RANGE = -4
    LOG_STORAGE_ERROR = -5              # disk full (append again when there is room) or offline
    LOG_TOO_LARGE = -6                  # batch larger than segment.bytes
    LOG_INVALID_TXN_STATE = -7
    LOG_COORDINATOR_FENCED = -8
    LOG_NO_MEMORY = -9
    LOG_CLOSED = -10                    # deleted or closed under the caller
    LOG_CORRUPT = -11                   # what is on disk is not what was written
    LOG_MOVING = -12                    # to another directory, at this moment: try again
    LOG_HELD = -13                      # its lock, by somebody who stands in the disk: try again

cdef enum LogEnd:
    LOG_IN_USE = 0
    LOG_IS_CLOSED = 1
    LOG_IS_DELETED = 2                  # its topic was: there is no such partition any more

cdef enum Isolation:
    READ_TO_HW = 0
    READ_TO_LSO = 1
    READ_TO_LEO = 2

cdef enum:
    RECENT_READS = 8
    NO_SNAPSHOT = -1

ctypedef struct LogConfig:              # bytes and ms; -1: no limit
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
    int64_t segment_age_ms              # by the clock, not by timestamps
    int64_t index_interval_bytes
    int64_t segment_index_bytes
    int64_t retention_ms
    int64_t retention_bytes
    int64_t max_message_bytes
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int64_t flush_messages
    int64_t flush_ms
    int64_t file_delete_delay_ms
    int64_t producer_id_expiration_ms
    int64_t delete_retention_ms         # these four are the cleaner's
    int64_t min_compaction_lag_ms
    int64_t max_compaction_lag_ms
    int64_t min_cleanable_ppb           # min.cleanable.dirty.ratio times 10^9
    int32_t timestamp_type              # 0 CreateTime, 1 LogAppendTime
    int32_t compression_type            # -1 producer, 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    int32_t compression_level
    int32_t cleanup_delete
    int32_t cleanup_compact
    int32_t min_insync_replicas
    int32_t preallocate                 # taken for Kafka's sake: blocks are always prepared ahead

ctypedef struct Position:               # where an offset lies
    int64_t offset
    int64_t segment_base
    int64_t byte

ctypedef struct LogCounts:              # since the log was opened
    int64_t records_in                  # of clients and coordinators; under the lock
    int64_t bytes_in
    int64_t bytes_out                   # atomic, as those that follow
    int64_t produces                    # produce requests to this partition
    int64_t produces_failed
    int64_t fetches                     # answers about this partition
    int64_t fetches_failed

ctypedef struct Log:
    FileOwner files                     # the first member: see let_go in log_state.pyx
    pthread_mutex_t lock
    int32_t refs                        # atomic
    int32_t offline                     # sticky disk error; atomic
    int32_t closed                      # a LogEnd; atomic
    int32_t error_errno                 # of the error that took the log offline
    int32_t held                        # atomic: log_lock_soon has waited for nothing
    int32_t frozen                      # moves to another directory: nothing changes it now
    int32_t partition
    char* dir                           # owned
    char* topic                         # owned
    uint8_t topic_id[16]
    LogConfig cfg
    int64_t log_start                   # watermarks: see log_watermarks
    int64_t leo
    int64_t hw
    int64_t lso
    int64_t acknowledged                # end of what was, before it was durable; atomic
    Position hw_at                      # hw_at.offset == hw
    Position lso_at                     # valid when lso_at.offset == lso
    pthread_mutex_t flush_lock          # one flush at a time; taken before `lock`
    int64_t recovery_point              # everything below was fdatasynced
    int64_t last_flushed_ms
    int32_t leader_epoch                # stamped on appended batches; atomic
    EpochCache epochs
    Segment** segments                  # ascending by base offset; the last one is active
    int32_t count                       # at least 1 while open
    int32_t capacity
    Segment** retired                   # renamed to .deleted, not unlinked yet
    int32_t retired_count
    int32_t retired_capacity
    int64_t cleaned_bytes               # of the segment that a cleaning is writing; atomic
    int64_t seen_bytes                  # what log_disk_bytes found last; atomic
    Producers* producers                # NULL until a batch with a producer id comes
    int64_t snapshot_offset             # of the newest producer snapshot; NO_SNAPSHOT
    int32_t snapshot_dirty              # ... which was not synced
    int64_t bytes_since_snapshot
    int32_t dir_dirty                   # files came or went since the folder was synced
    int32_t parent_dirty                # the folder itself is new
    int32_t directory                   # its place among log.dirs
    Journal* journal                    # of that directory; NULL: durability=page-cache
    JournalOwner* journal_owner         # the journal's; owned; NULL until the first append
    void* watchers                      # purgatory's
    pthread_mutex_t watch_lock          # purgatory's
    int64_t mark                        # purgatory's: see log_mark; atomic
    void (*on_mark)(void* argument) noexcept nogil
    void* mark_argument
    Position* recent                    # RECENT_READS ends of reads, or NULL: spares index searches
    uint32_t recent_next
    Position* pending                   # ring: ends of appends above hw: hw_at needs no search
    uint32_t pending_capacity           # power of two; 0: none
    uint32_t pending_head
    uint32_t pending_count
    uint64_t random                     # of the roll jitter
    int64_t last_append_ms
    LogCounts counts

ctypedef struct Watermarks:
    int64_t log_start
    int64_t leo
    int64_t hw
    int64_t lso

# ---- any thread, no lock

cdef void log_watermarks(const Log* log, Watermarks* out) noexcept nogil
# A producer is about to have its answer for what lies below end_offset, which may not be durable.
cdef void log_acknowledge(Log* log, int64_t end_offset) noexcept nogil
# Where the greatest of those ends; at or below hw when all of it is durable.
cdef int64_t log_acknowledged(const Log* log) noexcept nogil
cdef void log_ref(Log* log) noexcept nogil
cdef void log_unref(Log* log) noexcept nogil
cdef void log_set_leader_epoch(Log* log, int32_t epoch) noexcept nogil

# Take the lock, but wait no longer than anything in memory takes: False when somebody stands
# in the disk with it. For those whom others wait for; the next ones do not even wait so long.
cdef bint log_lock_soon(Log* log) noexcept nogil

# ---- the log's own modules; the lock is held (log_new: nobody else knows the log yet)

cdef Log* log_new(const char* dir, const char* topic, const uint8_t* topic_id,
                  int32_t partition, const LogConfig* cfg) noexcept nogil
# LOG_OK, LOG_CLOSED or LOG_STORAGE_ERROR.
cdef int log_usable(const Log* log) noexcept nogil
# What an errno means here: LOG_STORAGE_ERROR, and offline unless the disk is only full.
cdef int log_disk_error(Log* log, int error) noexcept nogil
cdef int log_offline(Log* log, int error) noexcept nogil
# Open the file of a segment, under the bound for open files. 0 or an errno.
cdef int log_open_segment(Log* log, Segment* s, bint create) noexcept nogil
cdef void log_index_limits(const Log* log, IndexLimits* out) noexcept nogil
cdef Segment* log_active(const Log* log) noexcept nogil
# Greatest i with segments[i].base_offset <= offset; -1: none.
cdef int32_t log_floor(const Log* log, int64_t offset) noexcept nogil
cdef int32_t log_find_segment(const Log* log, int64_t base_offset) noexcept nogil   # exactly; or -1
cdef int log_push_segment(Log* log, Segment* s) noexcept nogil
# Take segments [first, first + n) out of the log, rename their files, keep them as retired.
cdef int log_retire(Log* log, int32_t first, int32_t n, int64_t now_ms) noexcept nogil
# Put a compacted segment, its files .swap, in the place of [first, first + n), which are retired;
# the active segment is not among them. LOG_NO_MEMORY changes nothing; any other error is final, and
# recovery completes the swap.
cdef int log_replace(Log* log, int32_t first, int32_t n, Segment* s, int64_t now_ms) noexcept nogil
# Where an offset begins: the batch that holds it or the next. LOG_OFFSET_OUT_OF_RANGE beyond leo.
cdef int log_locate(Log* log, int64_t offset, Position* out) noexcept nogil
cdef void log_remember(Log* log, const Position* at) noexcept nogil
cdef const Position* log_recall(const Log* log, int64_t offset) noexcept nogil
cdef void log_forget_positions(Log* log) noexcept nogil
# hw to `at`, lso behind it.
cdef void log_move_hw(Log* log, const Position* at) noexcept nogil
cdef void log_update_lso(Log* log) noexcept nogil
cdef void log_end_position(const Log* log, Position* out) noexcept nogil
