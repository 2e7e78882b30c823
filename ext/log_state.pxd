"""The log of one partition: what it holds, its errors, its settings, its watermarks, its
references.

Concurrency contract. `lock` guards everything but what is named otherwise. `log_start`, `leo`, `hw`
and `lso`
are written under the lock and may be loaded atomically without it (`log_watermarks`). No function
here calls
out (to purgatory, to the journal's flusher) while it holds the lock, but for
journal_reserve/commit/cancel.
Lock order: log.lock, then the journal's own. `watch_lock` is purgatory's and is never taken by the
log.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.epochs cimport EpochCache
from kbroker.ext.journal cimport Journal, JournalOwner
from kbroker.ext.posix cimport pthread_mutex_t
from kbroker.ext.producers cimport Producers
from kbroker.ext.segment cimport Segment

cdef enum LogError:
    LOG_OK = 0
    # the journal has no room: nothing has changed, try again later
    LOG_STALL = 1
    # appended before: AppendResult holds the offsets of that time
    LOG_DUPLICATE = 2
    LOG_OUT_OF_ORDER_SEQUENCE = -1
    LOG_INVALID_PRODUCER_EPOCH = -2
    LOG_OFFSET_OUT_OF_RANGE = -4
    # disk full (append again when there is room) or offline (sticky)
    LOG_STORAGE_ERROR = -5
    LOG_TOO_LARGE = -6                  # batch larger than segment.bytes
    LOG_INVALID_TXN_STATE = -7
    LOG_COORDINATOR_FENCED = -8
    LOG_NO_MEMORY = -9
    LOG_CLOSED = -10                    # deleted or closed under the caller
    LOG_CORRUPT = -11                   # what is on disk is not what was written

cdef enum Isolation:
    READ_TO_HW = 0
    READ_TO_LSO = 1
    READ_TO_LEO = 2

ctypedef struct LogConfig:              # bytes and ms; -1: no limit
    int64_t segment_bytes
    int64_t segment_ms
    int64_t segment_jitter_ms
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
    int32_t timestamp_type              # 0 CreateTime, 1 LogAppendTime
    int32_t compression_type            # -1 producer, 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd
    int32_t compression_level
    int32_t cleanup_delete
    int32_t cleanup_compact
    int32_t min_insync_replicas
    int32_t preallocate

ctypedef struct Position:               # where an offset lies
    int64_t offset
    int64_t segment_base
    int64_t byte

ctypedef struct Log:
    pthread_mutex_t lock
    int32_t refs                          # atomic
    int32_t offline                       # sticky disk error; atomic
    int32_t closed                        # closed or deleted; atomic
    int32_t partition
    char* dir                           # owned; renamed at deletion of the topic
    char* topic                         # owned
    uint8_t topic_id[16]
    LogConfig cfg                       # under the lock
    int64_t log_start                   # watermarks: see log_watermarks
    int64_t leo
    int64_t hw
    int64_t lso
    Position hw_at                      # hw_at.offset == hw
    Position lso_at
    int64_t recovery_point              # everything below was fdatasynced
    int64_t durable_end                 # everything below is on disk, in the journal or here
    int64_t last_flushed_ms
    int32_t leader_epoch
    EpochCache epochs
    # ascending by base offset; the last one is active; never empty when open
    Segment** segments
    int count
    int capacity
    # renamed to .deleted, to be unlinked after file_delete_delay_ms
    Segment** retired
    int retired_count
    int retired_capacity
    Producers* producers                # NULL until a batch with a producer id comes
    Journal* journal                    # NULL: durability=page-cache
    JournalOwner journal_owner          # the journal's; context is this log
    void* watchers                      # purgatory's
    pthread_mutex_t watch_lock          # purgatory's
    Position recent[8]                  # ends of recent reads: a reader in sequence skips the index
    int recent_next
    Position* pending                   # ends of appends above hw, so that hw_at needs no search
    int pending_head
    int pending_count
    int64_t rate_bytes                  # size of the next fallocate step
    int error_errno                     # of the error that took the log offline

ctypedef struct Watermarks:
    int64_t log_start
    int64_t leo
    int64_t hw
    int64_t lso

cdef void log_watermarks(const Log* log, Watermarks* out) noexcept nogil
cdef void log_ref(Log* log) noexcept nogil
cdef void log_unref(Log* log) noexcept nogil
