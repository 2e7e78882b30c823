"""The log of one partition, for the control plane, tools and tests.

Every method that may touch the disk frees the GIL. Errors: DiskError (full, failed, or closed under
the caller), CorruptFileError, ClientError with Kafka's code where a caller asked for what cannot
be. The data plane does not pass through here.
"""
import os

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker.ext.appending cimport Appending, appending_new, appending_result
from kbroker.ext.atomics cimport atomic_load_i32, atomic_load_i64
from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.epochs cimport epochs_assign, epochs_latest
from kbroker.ext.log_errors cimport check, failure
from kbroker.ext.log_find cimport (
    TimestampOffset,
    log_offset_for_timestamp,
    log_offset_of_max_timestamp,
)
from kbroker.ext.log_flush cimport log_flush, log_flush_due
from kbroker.ext.log_listing cimport (
    Rows, log_list_epochs, log_list_producers, log_list_retired, log_list_segments, rows_take,
)
from kbroker.ext.log_producers cimport log_in_txn
from kbroker.ext.log_read cimport ReadSlice, log_end_offset_for_epoch, log_read
from kbroker.ext.log_recovery cimport OpenArgs, log_close, log_create, log_open
from kbroker.ext.log_retention cimport (
    log_configure, log_delete_old, log_expire_producers, log_idle, log_mark_deleted, log_roll,
    log_set_start, log_size, log_truncate_to, log_unlink_deleted,
)
from kbroker.ext.log_state cimport (
    LOG_CLOSED,
    LOG_CORRUPT,
    LOG_HELD,
    READ_TO_HW,
    READ_TO_LEO,
    READ_TO_LSO,
    LogConfig,
    log_offline,
    log_set_leader_epoch,
    log_unref,
)
from kbroker.ext.posix cimport EIO, pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.segment cimport segment_unref
from kbroker.ext.walk cimport read_fully

_ISOLATION = {
    "high_watermark": READ_TO_HW,
    "last_stable_offset": READ_TO_LSO,
    "log_end_offset": READ_TO_LEO,
}


cdef int fill_config(LogConfig* cfg, dict given) except -1:
    memset(cfg, 0, sizeof(LogConfig))
    cfg.segment_bytes = given["segment_bytes"]
    cfg.segment_ms = given["segment_ms"]
    cfg.segment_jitter_ms = given["segment_jitter_ms"]
    cfg.segment_age_ms = given["segment_age_ms"]
    cfg.index_interval_bytes = given["index_interval_bytes"]
    cfg.segment_index_bytes = given["segment_index_bytes"]
    cfg.retention_ms = given["retention_ms"]
    cfg.retention_bytes = given["retention_bytes"]
    cfg.max_message_bytes = given["max_message_bytes"]
    cfg.timestamp_before_max_ms = given["timestamp_before_max_ms"]
    cfg.timestamp_after_max_ms = given["timestamp_after_max_ms"]
    cfg.flush_messages = given["flush_messages"]
    cfg.flush_ms = given["flush_ms"]
    cfg.file_delete_delay_ms = given["file_delete_delay_ms"]
    cfg.producer_id_expiration_ms = given["producer_id_expiration_ms"]
    cfg.delete_retention_ms = given["delete_retention_ms"]
    cfg.min_compaction_lag_ms = given["min_compaction_lag_ms"]
    cfg.max_compaction_lag_ms = given["max_compaction_lag_ms"]
    cfg.min_cleanable_ppb = given["min_cleanable_ppb"]
    cfg.timestamp_type = given["timestamp_type"]
    cfg.compression_type = given["compression_type"]
    cfg.compression_level = given["compression_level"]
    cfg.cleanup_delete = given["cleanup_delete"]
    cfg.cleanup_compact = given["cleanup_compact"]
    cfg.min_insync_replicas = given["min_insync_replicas"]
    cfg.preallocate = given["preallocate"]
    return 0


cdef class Log:
    """A partition's log. Owns one reference to the C struct, and nothing else."""

    def __init__(
        self,
        str directory not None,
        str topic not None,
        bytes topic_id not None,
        int partition,
        dict config not None,
        *,
        int64_t log_start_offset=0,
        int64_t recovery_point=0,
        bint clean,
        bint durable,
        bint fresh=False,
    ):
        """Open or create the log of a folder. `fresh`: the folder was created just now, so that
        nothing in it is looked for."""
        cdef OpenArgs args
        cdef LogConfig cfg
        cdef int error = 0
        cdef int error_errno = 0
        if self.core != NULL:
            raise ValueError("the log is open")
        if len(topic_id) != 16:
            raise ValueError("a topic id has 16 bytes")
        fill_config(&cfg, config)
        encoded_directory = os.fsencode(directory)
        encoded_topic = topic.encode()
        args.dir = encoded_directory
        args.topic = encoded_topic
        args.topic_id = topic_id
        args.partition = partition
        args.cfg = &cfg
        args.log_start = log_start_offset
        args.recovery_point = recovery_point
        args.clean = clean
        args.now_ms = realtime_ms()
        with nogil:
            if fresh:
                self.core = log_create(&args, &error)
            else:
                self.core = log_open(&args, &self.report, &error, &error_errno)
        if self.core == NULL:
            raise failure(error, directory, error_errno)
        # Recovered batches may so far be in the page cache only. A reader must not see a batch that
        # a power cut could take back.
        if durable and not clean:
            self.flush()

    def __dealloc__(self):
        if self.core != NULL:
            with nogil:
                log_unref(self.core)

    @property
    def recovery(self):
        """Bytes and segments that opening the log has checked, cut, rebuilt or dropped."""
        return {
            "bytes_walked": self.report.bytes_walked,
            "bytes_cut": self.report.bytes_cut,
            "indexes_rebuilt": self.report.indexes_rebuilt,
            "segments_dropped": self.report.segments_dropped,
        }

    # ---- watermarks and sizes

    @property
    def log_start_offset(self):
        return atomic_load_i64(&self.core.log_start)

    @property
    def high_watermark(self):
        return atomic_load_i64(&self.core.hw)

    @property
    def last_stable_offset(self):
        return atomic_load_i64(&self.core.lso)

    @property
    def log_end_offset(self):
        return atomic_load_i64(&self.core.leo)

    @property
    def recovery_point(self):
        return atomic_load_i64(&self.core.recovery_point)

    @property
    def size_bytes(self):
        cdef int64_t size
        with nogil:
            size = log_size(self.core)
        return size

    @property
    def leader_epoch(self):
        return atomic_load_i32(&self.core.leader_epoch)

    @leader_epoch.setter
    def leader_epoch(self, int32_t epoch):
        """Set the leader epoch from the log's end on, as Kafka does before the first append."""
        with nogil:
            pthread_mutex_lock(&self.core.lock)
            if epoch > epochs_latest(&self.core.epochs):
                epochs_assign(&self.core.epochs, epoch, self.core.leo)
            pthread_mutex_unlock(&self.core.lock)
        log_set_leader_epoch(self.core, epoch)

    @property
    def offline(self):
        """The disk error that took the log offline, in words, or None."""
        if not atomic_load_i32(&self.core.offline):
            return None
        return os.strerror(self.core.error_errno)

    @property
    def offline_errno(self):
        """The errno of that, or 0."""
        return self.core.error_errno if atomic_load_i32(&self.core.offline) else 0

    @property
    def directory(self):
        """The place of its directory among log.dirs."""
        return self.core.directory

    def take_offline(self, int error):
        """As if this log had met the error, of a disk that it shares. Waits for nobody who stands
        in it; who waits for it is woken by DataPlane.wake."""
        log_offline(self.core, error)

    # ---- append and read

    def append(self, bytes batches not None, *, int32_t leader_epoch, int64_t room_wait_ms=-1,
               int transaction_version=0):
        """Append whole batches as the leader of `leader_epoch`: first and last offset given. An end
        marker is judged by the version of its transaction.

        While the disk hangs, the journal has no room: REQUEST_TIMED_OUT after room_wait_ms of that
        (-1: never), for a batch of which nothing is written then. A write that stands in the disk
        is not waited for much longer: LateError, and its `append` tells when it is over."""
        cdef Appending* appending = appending_new(self.core, batches, room_wait_ms)
        appending.terms.transaction_version = transaction_version
        log_set_leader_epoch(self.core, leader_epoch)
        return appending_result(appending, room_wait_ms >= 0)

    def read(self, int64_t offset, int32_t max_bytes, *, str up_to="high_watermark"):
        """Whole batches from the one that holds `offset` on, at least one if there is one; empty
        at the end."""
        cdef ReadSlice piece
        cdef int isolation = _ISOLATION[up_to]
        cdef int code
        cdef int64_t got
        cdef bytes data
        cdef char* room
        with nogil:
            code = log_read(self.core, offset, max_bytes, isolation, True, &piece)
        check(self.core, code)
        if piece.segment == NULL:
            return b""
        data = PyBytes_FromStringAndSize(NULL, piece.length)
        room = PyBytes_AS_STRING(data)
        with nogil:
            got = read_fully(piece.fd, room, piece.length, piece.position)
            segment_unref(piece.segment)
        if got != piece.length:
            raise failure(LOG_CORRUPT, os.fsdecode(self.core.dir), EIO)
        return data[:whole_batches(<uint8_t*> room, got)]

    # ---- find

    def offset_for_timestamp(self, int64_t timestamp):
        """(offset, timestamp, leader epoch) of the first record at least as late, or None."""
        cdef TimestampOffset found
        cdef int code
        with nogil:
            code = log_offset_for_timestamp(self.core, timestamp, &found)
        check(self.core, code)
        return None if found.offset < 0 else (found.offset, found.timestamp, found.leader_epoch)

    def offset_of_max_timestamp(self):
        """(offset, timestamp, leader epoch) of the first record with the latest one, or None."""
        cdef TimestampOffset found
        cdef int code
        with nogil:
            code = log_offset_of_max_timestamp(self.core, &found)
        check(self.core, code)
        return None if found.offset < 0 else (found.offset, found.timestamp, found.leader_epoch)

    def end_offset_for_epoch(self, int32_t epoch):
        """(largest epoch at or below, where it ends); (-1, -1) when that is not known."""
        cdef int32_t found
        cdef int64_t end_offset
        cdef int code
        with nogil:
            code = log_end_offset_for_epoch(self.core, epoch, &found, &end_offset)
        check(self.core, code)
        return found, end_offset

    # ---- what it holds

    def segments(self):
        """Return (base offset, bytes, largest timestamp in ms or -1) of each segment."""
        cdef Rows rows
        cdef int code
        with nogil:
            code = log_list_segments(self.core, &rows)
        check(self.core, code)
        return rows_take(&rows)

    def leader_epochs(self):
        """Return (epoch, start offset) of each leader epoch known."""
        cdef Rows rows
        cdef int code
        with nogil:
            code = log_list_epochs(self.core, &rows)
        check(self.core, code)
        return rows_take(&rows)

    def producers(self):
        """Return (producer id, epoch, last sequence, last timestamp, coordinator epoch, first
        offset of its transaction or -1) of each producer, by id."""
        cdef Rows rows
        cdef int code
        with nogil:
            code = log_list_producers(self.core, &rows)
        check(self.core, code)
        return sorted(rows_take(&rows))

    def in_transaction(self, int64_t producer_id, int epoch):
        """Whether the producer has an open transaction here, in this epoch."""
        cdef int found
        with nogil:
            found = log_in_txn(self.core, producer_id, epoch)
        if found == LOG_HELD:
            check(self.core, LOG_HELD)
        return bool(found)

    # ---- upkeep

    def set_log_start_offset(self, int64_t offset):
        """Records below `offset` are gone for readers; ClientError beyond the high watermark."""
        cdef int code
        with nogil:
            code = log_set_start(self.core, offset)
        check(self.core, code)

    def delete_old_segments(self, int64_t now_ms):
        """Apply retention and log start. Return the base offsets of the segments retired; their
        files are renamed to .deleted."""
        cdef Rows rows
        cdef int n
        cdef int code
        with nogil:
            n = log_delete_old(self.core, now_ms)
        check(self.core, n)
        with nogil:
            code = log_list_retired(self.core, n, &rows)
        check(self.core, code)
        return [base_offset for base_offset, in rows_take(&rows)]

    def unlink_deleted(self, *, bint at_once=False):
        """Unlink what was retired file.delete.delay.ms ago (at_once: whenever): how many."""
        cdef int n
        with nogil:
            n = log_unlink_deleted(self.core, realtime_ms(), at_once)
        return n

    def roll(self):
        """Begin a new segment; nothing when the active one is empty."""
        cdef int code
        with nogil:
            code = log_roll(self.core, realtime_ms())
        check(self.core, code)

    def flush(self):
        """Put everything on disk: the new recovery point."""
        cdef int64_t recovery_point
        cdef int code
        with nogil:
            code = log_flush(self.core, realtime_ms(), &recovery_point)
        check(self.core, code)
        return recovery_point

    def flush_due(self, int64_t now_ms, int64_t idle_ms):
        """flush.messages, flush.ms, a rolled segment, or idle_ms without appends ask for one."""
        cdef bint due
        with nogil:
            due = log_flush_due(self.core, now_ms, idle_ms)
        return bool(due)

    def let_go(self, int64_t now_ms, int64_t idle_ms):
        """Close files and mappings of segments that were not used for idle_ms: how many."""
        cdef int n
        with nogil:
            n = log_idle(self.core, now_ms, idle_ms)
        return n

    def expire_producers(self, int64_t now_ms):
        """Forget producers that were quiet for producer.id.expiration.ms: how many."""
        cdef int n
        with nogil:
            n = log_expire_producers(self.core, now_ms)
        return n

    def configure(self, dict config not None):
        """Settings from now on."""
        cdef LogConfig cfg
        fill_config(&cfg, config)
        with nogil:
            log_configure(self.core, &cfg)

    def truncate_to(self, int64_t offset):
        """Drop records from `offset` on."""
        cdef int code
        with nogil:
            code = log_truncate_to(self.core, offset, realtime_ms())
        check(self.core, code)

    def close(self, bint clean=True, *, bint sync=True):
        """Later calls fail. clean: trimmed, producers in a snapshot, synced. Who closes many at
        once leaves out the sync of each and calls sync_file_system at the end."""
        cdef int code
        with nogil:
            code = log_close(self.core, clean, sync)
        if clean and code != LOG_CLOSED:
            check(self.core, code)

    def mark_deleted(self):
        """The topic is deleted: no file is touched by name any more. Before the folder moves."""
        with nogil:
            log_mark_deleted(self.core)


cdef int64_t whole_batches(const uint8_t* p, int64_t n) noexcept nogil:
    """Bytes of the whole batches that [p, p + n) begins with."""
    cdef BatchInfo info
    cdef int64_t at = 0
    while at < n and batch_parse(p + at, p + n, &info) == BATCH_OK:
        at += info.length
    return at
