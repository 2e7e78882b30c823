"""Put a log on disk (see log_flush.pxd)."""
import os

from kbroker.errors import DiskError

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_add_i64, atomic_load_i64, atomic_store_i64
from kbroker.ext.epochs cimport EpochCache, EpochEntry, epochs_init, epochs_write
from kbroker.ext.journal_files cimport directory_sync
from kbroker.ext.log_state cimport (
    LOG_CLOSED,
    LOG_OK,
    NO_SNAPSHOT,
    log_active,
    log_disk_error,
    log_find_segment,
    log_offline,
    log_open_segment,
    log_usable,
)
from kbroker.ext.posix cimport (
    ENOENT,
    ENOMEM,
    O_CLOEXEC,
    O_DIRECTORY,
    O_RDONLY,
    close,
    open,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    snprintf,
    syncfs,
)
from kbroker.ext.segment cimport (
    Segment,
    segment_ref,
    segment_sync,
    segment_unref,
)
from kbroker.ext.snapshots cimport snapshot_sync, snapshot_unlink, snapshot_write
from kbroker.ext.syncs cimport file_sync, is_shortage
from kbroker.ext.txn_index cimport txn_index_sync

cdef enum:
    PATH_BYTES = 4096
    SNAPSHOT_AFTER_BYTES = 64 << 20

ctypedef struct Dirty:                  # what a flush has to sync, taken under the lock
    Segment** segments                  # held
    int* fds                            # their descriptors, or -1
    int32_t* indexes                    # and whether its indexes go with it
    int32_t count
    int64_t end_offset                  # everything appended below this is in it
    int64_t snapshot                    # offset of a producer snapshot, or NO_SNAPSHOT
    int64_t outdated                    # one that is of no use once that is synced
    int folder_fd                       # the log's folder, whatever its name is; -1: not open
    bint folder
    bint parent
    bint epochs_dirty
    EpochCache epochs                   # a copy

cdef int64_t put_off = 0                # atomic: see flushes_put_off
cdef int64_t put_off_errno = 0          # atomic


cdef bint index_due(const Segment* s) noexcept nogil:
    """Indexes are synced once, when the segment takes no more: until then recovery does not rely
    on what it cannot check."""
    return s.sealed and (s.offsets.dirty or s.times.dirty)


# ---- take what is dirty

cdef int copy_epochs(const EpochCache* from_, EpochCache* to) noexcept nogil:
    epochs_init(to)
    if from_.count == 0:
        return 0
    to.entries = <EpochEntry*> malloc(from_.count * sizeof(EpochEntry))
    if to.entries == NULL:
        return ENOMEM
    memcpy(to.entries, from_.entries, from_.count * sizeof(EpochEntry))
    to.count = from_.count
    return 0


cdef void refresh_snapshot(Log* log, Dirty* out) noexcept nogil:
    """After a crash the batches behind the newest snapshot are read again: not too many of them.

    One that stands at no segment's base offset has had its time when the next is on disk.
    """
    if log.bytes_since_snapshot < SNAPSHOT_AFTER_BYTES or log.leo == log.snapshot_offset:
        return
    if snapshot_write(log.dir, log.leo, log.producers, False) != 0:
        return
    if log.snapshot_offset != NO_SNAPSHOT and log_find_segment(log, log.snapshot_offset) < 0:
        out.outdated = log.snapshot_offset
    log.snapshot_offset = log.leo
    log.snapshot_dirty = 1
    log.dir_dirty = 1
    log.bytes_since_snapshot = 0


cdef int make_ready(Log* log, Dirty* out) noexcept nogil:
    """All that can fail before anything is taken. 0 or an errno."""
    cdef int32_t i
    cdef int error
    memset(out, 0, sizeof(Dirty))
    out.outdated = NO_SNAPSHOT
    out.snapshot = NO_SNAPSHOT
    out.folder_fd = -1
    refresh_snapshot(log, out)
    out.segments = <Segment**> malloc(log.count * sizeof(Segment*))
    out.fds = <int*> malloc(log.count * sizeof(int))
    out.indexes = <int32_t*> malloc(log.count * sizeof(int32_t))
    if (out.segments == NULL or out.fds == NULL or out.indexes == NULL
            or copy_epochs(&log.epochs, &out.epochs) != 0):
        return ENOMEM
    for i in range(log.count):
        error = log_open_segment(log, log.segments[i], False) if log.segments[i].dirty else 0
        if error:
            return error
    if log.dir_dirty or log.epochs.dirty:
        # Opened while the log is known to have its name, which another has once it is deleted.
        out.folder_fd = open(log.dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
        if out.folder_fd < 0:
            return errno
    return 0


cdef int take_dirty(Log* log, Dirty* out) noexcept nogil:
    """Whatever is appended from here on is dirty again. 0 or an errno: then nothing was taken."""
    cdef int32_t i
    cdef Segment* s
    cdef int error = make_ready(log, out)
    if error:
        return error
    for i in range(log.count):
        s = log.segments[i]
        if not s.dirty and not index_due(s):
            continue
        segment_ref(s)
        out.segments[out.count] = s
        out.fds[out.count] = s.fd
        out.indexes[out.count] = index_due(s)
        if index_due(s):
            s.offsets.dirty = 0
            s.times.dirty = 0
        s.dirty = 0
        out.count += 1
    out.end_offset = log.leo
    out.snapshot = log.snapshot_offset if log.snapshot_dirty else NO_SNAPSHOT
    out.folder = log.dir_dirty != 0
    out.parent = log.parent_dirty != 0
    out.epochs_dirty = log.epochs.dirty != 0
    log.snapshot_dirty = 0
    log.dir_dirty = 0
    log.parent_dirty = 0
    log.epochs.dirty = 0
    return 0


cdef void put_back(Log* log, const Dirty* dirty) noexcept nogil:
    """The lock is held. What was taken is dirty again, what of it was synced as well."""
    cdef int32_t i
    cdef Segment* s
    for i in range(dirty.count):
        s = dirty.segments[i]
        s.dirty = 1
        if dirty.indexes[i]:
            s.offsets.dirty = 1
            s.times.dirty = 1
    log.snapshot_dirty |= dirty.snapshot != NO_SNAPSHOT
    log.dir_dirty |= dirty.folder
    log.parent_dirty |= dirty.parent
    log.epochs.dirty |= dirty.epochs_dirty


cdef int sync_dirty(const Log* log, Dirty* dirty) noexcept nogil:
    """Segments before the folder that names them; 0 or an errno."""
    cdef char parent[PATH_BYTES]
    cdef int32_t i
    cdef int error = 0
    for i in range(dirty.count):
        error = segment_sync(dirty.segments[i], dirty.fds[i], dirty.indexes[i]) \
            or txn_index_sync(dirty.segments[i])
        if error:
            return error
    if dirty.snapshot != NO_SNAPSHOT:
        error = snapshot_sync(log.dir, dirty.snapshot)
    if error == 0 and dirty.folder:
        error = file_sync(dirty.folder_fd)
    if error == 0 and dirty.parent:
        snprintf(parent, PATH_BYTES, "%s/..", log.dir)
        error = directory_sync(parent)
    return error


cdef int sync_epochs(Dirty* dirty) noexcept nogil:
    """The checkpoint of the leader epochs, written whole each time; 0 or an errno.

    Where the disk has no room for it nothing is lost: recovery finds the epochs of all batches
    behind the recovery point, which waits for this file.
    """
    if not dirty.epochs_dirty:
        return 0
    return epochs_write(&dirty.epochs, dirty.folder_fd, True) or file_sync(dirty.folder_fd)


cdef void release(Dirty* dirty) noexcept nogil:
    cdef int32_t i
    for i in range(dirty.count):
        segment_unref(dirty.segments[i])
    if dirty.folder_fd >= 0:
        close(dirty.folder_fd)
    free(dirty.segments)
    free(dirty.fds)
    free(dirty.indexes)
    free(dirty.epochs.entries)


# ---- flush

cdef bint moved_away(const Log* log, int error) noexcept nogil:
    """The lock is held again. A log that was deleted meanwhile has its folder renamed under the
    flush, which then misses what it opens by name: that is no error of the disk."""
    return (error == 0 or error == ENOENT) and log_usable(log) == LOG_CLOSED


cdef int failed(Log* log, const Dirty* dirty, int error) noexcept nogil:
    """The lock is held. Where only descriptors or memory lack, the next flush does it all."""
    if not is_shortage(error):
        return log_offline(log, error)
    put_back(log, dirty)
    atomic_store_i64(&put_off_errno, error)
    atomic_add_i64(&put_off, 1)
    return log_disk_error(log, error)


cdef int finish(Log* log, const Dirty* dirty, int error, int epochs_error,
                int64_t now_ms) noexcept nogil:
    """The lock is held again."""
    if moved_away(log, error or epochs_error):
        return LOG_CLOSED
    if error:
        return failed(log, dirty, error)
    if dirty.outdated != NO_SNAPSHOT:
        snapshot_unlink(log.dir, dirty.outdated)
    if epochs_error:
        log.epochs.dirty = 1
        log_disk_error(log, epochs_error)
        return log_usable(log)
    log.recovery_point = max(log.recovery_point, dirty.end_offset)
    log.last_flushed_ms = now_ms
    return LOG_OK


cdef int log_flush(Log* log, int64_t now_ms, int64_t* recovery_point) noexcept nogil:
    """All data on disk, and the recovery point behind it; where the disk is full, the recovery
    point may stay."""
    cdef Dirty dirty
    cdef int error = 0
    cdef int epochs_error = 0
    pthread_mutex_lock(&log.flush_lock)
    pthread_mutex_lock(&log.lock)
    cdef int code = log_usable(log)
    if code == LOG_OK:
        error = take_dirty(log, &dirty)
        pthread_mutex_unlock(&log.lock)
        error = error or sync_dirty(log, &dirty)
        if error == 0:
            epochs_error = sync_epochs(&dirty)
        pthread_mutex_lock(&log.lock)
        code = finish(log, &dirty, error, epochs_error, now_ms)
        release(&dirty)
    recovery_point[0] = log.recovery_point
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flush_lock)
    return code


cdef int log_sync_all(Log* log, bint sync) noexcept nogil:
    cdef Dirty dirty
    cdef int code = LOG_OK
    cdef int error = take_dirty(log, &dirty)
    cdef int epochs_error = 0
    if error == 0 and sync:
        error = sync_dirty(log, &dirty)
    if error:
        code = failed(log, &dirty, error)
    elif sync:
        epochs_error = sync_epochs(&dirty)
    elif dirty.epochs_dirty:
        epochs_error = epochs_write(&dirty.epochs, dirty.folder_fd, False)
    if epochs_error:
        code = log_disk_error(log, epochs_error)
    release(&dirty)
    return code


cdef bint log_flush_due(Log* log, int64_t now_ms, int64_t idle_ms) noexcept nogil:
    cdef int32_t i
    cdef int64_t unflushed
    cdef bint due = False
    pthread_mutex_lock(&log.lock)
    if log_usable(log) == LOG_OK:
        unflushed = log.leo - log.recovery_point
        if unflushed > 0:
            due = unflushed >= log.cfg.flush_messages \
                or now_ms - log.last_flushed_ms >= log.cfg.flush_ms \
                or (now_ms - log.last_append_ms >= idle_ms
                    and (log_active(log).dirty or log.epochs.dirty))
        i = log.count - 2
        while i >= 0 and not due:
            due = log.segments[i].dirty or index_due(log.segments[i])
            i -= 1
    pthread_mutex_unlock(&log.lock)
    return due


def flushes_put_off():
    """How many flushes of this process have so far found no descriptor, or no memory for one, and
    the errno of the last of them. Each is tried again."""
    return atomic_load_i64(&put_off), atomic_load_i64(&put_off_errno)


# ---- the whole file system

def sync_file_system(str directory not None, int descriptor=-1):
    """Put all that was written to the file system of a directory on disk; DiskError.

    With the descriptor of a file there, opened before the writes, errors of writeback count that
    another program's sync was told of meanwhile.
    """
    cdef int error = 0
    path = os.fsencode(directory)
    cdef const char* name = path
    cdef int fd = descriptor
    with nogil:
        if descriptor < 0:
            fd = open(name, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
        if fd < 0 or syncfs(fd) != 0:
            error = errno
        if descriptor < 0 and fd >= 0:
            close(fd)
    if error:
        raise DiskError(directory, OSError(error, os.strerror(error)))
