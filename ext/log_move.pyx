"""See log_move.pxd."""
import os

from kbroker.errors import CorruptFileError, DiskError

from libc.errno cimport errno
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset, strlen

from kbroker.ext.atomics cimport atomic_load_i32, atomic_load_i64, atomic_store_i32
from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.epochs cimport EpochCache, EpochEntry
from kbroker.ext.held cimport Held, held_release, held_take
from kbroker.ext.journal cimport Journal, JournalOwner, journal_demand, journal_owner_init
from kbroker.ext.journal_files cimport file_write
from kbroker.ext.log cimport Log as PyLog
from kbroker.ext.log_append cimport log_append_as_is, log_roll_locked
from kbroker.ext.log_read cimport ReadSlice, log_read
from kbroker.ext.log_state cimport (
    LOG_CORRUPT,
    LOG_NO_MEMORY,
    LOG_OK,
    LOG_STORAGE_ERROR,
    READ_TO_HW,
    log_active,
    log_find_segment,
    log_forget_positions,
    log_offline,
    log_retire,
    log_usable,
)
from kbroker.ext.posix cimport (
    EIO,
    ENOENT,
    O_CLOEXEC,
    O_CREAT,
    O_RDONLY,
    O_TRUNC,
    O_WRONLY,
    close,
    fdatasync,
    open,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    rename,
    snprintf,
    strdup,
)
from kbroker.ext.segment cimport Segment, segment_give_up, segment_unref
from kbroker.ext.snapshots cimport snapshot_write
from kbroker.ext.walk cimport read_fully

cdef enum:
    PIECE_BYTES = 1 << 20


# ---- the copy

cdef int hold(Log* log, Held* out) noexcept nogil:
    """All segments. No file is opened: a log may have more of them than a process may."""
    cdef int code
    memset(out, 0, sizeof(Held))
    pthread_mutex_lock(&log.lock)
    code = log_usable(log)
    if code == LOG_OK:
        code = held_take(log, log.count, out)
    pthread_mutex_unlock(&log.lock)
    return code


cdef int copy_piece(int source, int target, uint8_t* room, int64_t position,
                    int64_t length) noexcept nogil:
    """0, -1 where the file is shorter than it was, or an errno."""
    if read_fully(source, room, length, position) != length:
        return -1
    return file_write(target, room, length, position)


cdef object refused(str path, int code):
    if code == -1:
        return CorruptFileError(path, "shorter than what was written")
    return DiskError(path, OSError(code, os.strerror(code)))


cdef int64_t copy_one(Segment* s, int64_t size, str path, bytearray room, pace) except -1:
    """The bytes of a segment into a file, and onto the disk: by the descriptor that wrote them,
    which is told of every error. Nothing of one that retention has taken since it was held."""
    cdef bytes name = os.fsencode(path)
    cdef const char* raw = name
    cdef uint8_t* at = room
    cdef int64_t done = 0
    cdef int64_t length
    cdef int code = 0
    cdef int target = -1
    cdef int source = open(s.path, O_RDONLY | O_CLOEXEC, 0)
    if source < 0:
        code = errno
        if code == ENOENT and atomic_load_i32(&s.deleted):
            return 0
        raise refused(os.fsdecode(s.path), code)
    try:
        target = open(raw, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0o644)
        if target < 0:
            raise refused(path, errno)
        while done < size and code == 0:
            length = min(<int64_t> PIECE_BYTES, size - done)
            with nogil:
                code = copy_piece(source, target, at, done, length)
            done += length
            pace(length)
        if code == 0:
            with nogil:
                code = errno if fdatasync(target) != 0 else 0
    finally:
        close(source)
        if target >= 0:
            close(target)
    if code:
        raise refused(path, code)
    return size


def copy_segments(log: PyLog, folder: str, pace) -> int:
    """The `.log` files of all segments as they are now into a folder."""
    cdef Held held
    cdef bytearray room = bytearray(PIECE_BYTES)
    cdef Log* core = (<PyLog?> log).core
    cdef int64_t total = 0
    cdef int32_t i
    cdef int code
    with nogil:
        code = hold(core, &held)
    try:
        if code != LOG_OK:
            raise DiskError(folder, "the log is closed or offline")
        for i in range(held.count):
            if not held.segments[i].has_files:      # the first append will create them
                continue
            path = os.path.join(folder, f"{held.segments[i].base_offset:020d}.log")
            total += copy_one(held.segments[i], held.sizes[i], path, room, pace)
    finally:
        held_release(&held)
    return total


# ---- following

cdef int roll_like(Log* future, int64_t base_offset) noexcept nogil:
    """The next segment begins where that of the log does."""
    cdef int code = LOG_OK
    pthread_mutex_lock(&future.lock)
    if log_active(future).base_offset != base_offset:
        code = log_roll_locked(future, realtime_ms()) if future.leo == base_offset else LOG_CORRUPT
    pthread_mutex_unlock(&future.lock)
    return code


cdef int64_t append_all(Log* future, const uint8_t* p, int64_t length) noexcept nogil:
    """Whole batches; how many bytes of them, or a LogError."""
    cdef BatchInfo info
    cdef int64_t at = 0
    cdef int code
    while at < length and batch_parse(p + at, p + length, &info) == BATCH_OK:
        code = log_append_as_is(future, p + at, &info, realtime_ms())
        if code != LOG_OK:
            return code
        at += info.length
    return at if at > 0 else LOG_CORRUPT


cdef int64_t follow_piece(Log* log, Log* future) noexcept nogil:
    """Bytes that the future log got, 0 where it has all that is durable, or a LogError."""
    cdef ReadSlice piece
    cdef uint8_t* room
    cdef int64_t done
    cdef int code = log_read(log, atomic_load_i64(&future.leo), PIECE_BYTES, READ_TO_HW, True,
                             &piece)
    if code != LOG_OK:
        return code
    if piece.segment == NULL:
        return 0
    room = <uint8_t*> malloc(piece.length)
    code = roll_like(future, piece.segment.base_offset) if room != NULL else LOG_NO_MEMORY
    if code == LOG_OK and read_fully(piece.fd, room, piece.length, piece.position) != piece.length:
        code = LOG_CORRUPT
    done = append_all(future, room, piece.length) if code == LOG_OK else code
    segment_unref(piece.segment)
    free(room)
    return done


def follow(log: PyLog, future: PyLog, int64_t bytes_max) -> int:
    """Give the future log what the log has beyond it and is durable, about so many bytes at most;
    how many. Raises CorruptFileError where it cannot follow: it is to be copied anew then."""
    cdef int64_t total = 0
    cdef int64_t done = 1
    while 0 < done and total < bytes_max:
        with nogil:
            done = follow_piece(log.core, future.core)
        total += max(done, 0)
    if done < 0:
        text = f"cannot be followed (error {done})"
        raise CorruptFileError(os.fsdecode(log.core.dir), text)
    return total


# ---- the last moment

cdef void set_frozen(Log* log, bint frozen) noexcept nogil:
    """Whoever has the lock may be writing to a disk that is slow."""
    pthread_mutex_lock(&log.lock)
    log.frozen = frozen
    pthread_mutex_unlock(&log.lock)


def freeze(log: PyLog) -> None:
    """From here on nothing changes it, until `thaw` or the exchange; what it holds is asked to be
    made durable now."""
    cdef Log* core = (<PyLog?> log).core
    with nogil:
        set_frozen(core, 1)
        if core.journal != NULL:
            journal_demand(core.journal)


def thaw(log: PyLog) -> None:
    """It does not move after all."""
    cdef Log* core = (<PyLog?> log).core
    with nogil:
        set_frozen(core, 0)


cdef int take_epochs(EpochCache* to, const EpochCache* from_) noexcept nogil:
    """Those that began without a batch, too."""
    cdef void* moved = realloc(to.entries, max(from_.count, 1) * sizeof(EpochEntry))
    if moved == NULL:
        return LOG_NO_MEMORY
    to.entries = <EpochEntry*> moved
    to.capacity = max(from_.count, 1)
    to.count = from_.count
    if from_.count > 0:
        memcpy(to.entries, from_.entries, from_.count * sizeof(EpochEntry))
    to.dirty = 1
    return LOG_OK


cdef bint same_segments(const Log* log, const Log* future) noexcept nogil:
    cdef int32_t i
    if log.count != future.count or log.leo != future.leo or log.hw != log.leo:
        return False
    for i in range(log.count):
        if log.segments[i].base_offset != future.segments[i].base_offset \
                or log.segments[i].size != future.segments[i].size:
            return False
    return True


cdef int match_locked(Log* log, Log* future) noexcept nogil:
    """LOG_OK, LOG_CORRUPT where they differ, or another LogError."""
    cdef int code = log_usable(log)
    cdef int32_t n
    if code == LOG_OK and log_active(log).size == 0 \
            and log_active(future).base_offset != log_active(log).base_offset \
            and future.leo == log_active(log).base_offset:
        code = log_roll_locked(future, realtime_ms())
    if code != LOG_OK:
        return code
    n = log_find_segment(future, log.segments[0].base_offset)
    code = log_retire(future, 0, n, realtime_ms())          # retention has taken them here
    if code != LOG_OK or n < 0 or not same_segments(log, future):
        return code or LOG_CORRUPT
    if log.producers != NULL:
        if snapshot_write(future.dir, log.leo, log.producers, False) != 0:
            return LOG_STORAGE_ERROR
        future.snapshot_offset = log.leo    # those, too, whose batches retention has taken
        future.snapshot_dirty = 1
    future.dir_dirty = 1
    future.log_start = log.log_start
    log_active(future).jitter_ms = log_active(log).jitter_ms
    log_active(future).created_ms = log_active(log).created_ms
    return take_epochs(&future.epochs, &log.epochs)


def match(log: PyLog, future: PyLog) -> bool:
    """Of a frozen log, all of which is durable: whether its future has the same segments. It is to
    be flushed then."""
    cdef int code
    with nogil:
        pthread_mutex_lock(&log.core.lock)
        pthread_mutex_lock(&future.core.lock)
        code = match_locked(log.core, future.core)
        pthread_mutex_unlock(&future.core.lock)
        pthread_mutex_unlock(&log.core.lock)
    return code == LOG_OK


# ---- the exchange

cdef void name_anew(Log* log, const char* folder) noexcept nogil:
    """Its folder has another name, which is not longer."""
    cdef int32_t i
    for i in range(log.count):
        snprintf(log.segments[i].path, strlen(log.segments[i].path) + 1, "%s/%020lld.log", folder,
                 <long long> log.segments[i].base_offset)


cdef void swap_folders(Log* log, Log* future) noexcept nogil:
    """What the two have of their folders; all else is the log's."""
    log.dir, future.dir = future.dir, log.dir
    log.segments, future.segments = future.segments, log.segments
    log.count, future.count = future.count, log.count
    log.capacity, future.capacity = future.capacity, log.capacity
    log.retired, future.retired = future.retired, log.retired
    log.retired_count, future.retired_count = future.retired_count, log.retired_count
    log.retired_capacity, future.retired_capacity = future.retired_capacity, log.retired_capacity
    log.snapshot_offset, future.snapshot_offset = future.snapshot_offset, log.snapshot_offset
    log.snapshot_dirty = future.snapshot_dirty
    log.recovery_point = future.recovery_point
    log.dir_dirty = 1
    log.parent_dirty = 1
    log.epochs.dirty = 1
    log_forget_positions(log)


cdef int exchange_locked(Log* log, Log* future, const char* gone, const char* place,
                         Journal* journal, int32_t directory, int* kept) noexcept nogil:
    cdef JournalOwner* owner = <JournalOwner*> calloc(1, sizeof(JournalOwner))
    cdef char* name = strdup(place)
    cdef int32_t i
    cdef int code = log_usable(log)
    if owner == NULL or name == NULL:
        code = LOG_NO_MEMORY
    if code == LOG_OK and rename(future.dir, place) != 0:
        code = errno
    if code != LOG_OK:
        free(owner)
        free(name)
        code = code if code > 0 else EIO
        log_offline(log, code)
        return code
    kept[0] = errno if rename(log.dir, gone) != 0 else 0
    name_anew(future, place)
    free(future.dir)
    future.dir = name
    swap_folders(log, future)
    for i in range(future.count):
        segment_give_up(future.segments[i])
    journal_owner_init(owner, log, log.topic_id, log.partition)
    owner.before = log.journal_owner
    if log.journal_owner != NULL:
        atomic_store_i32(&log.journal_owner.has_left, 1)
    log.journal_owner = owner
    log.journal = journal
    log.directory = directory
    log.frozen = 0
    return 0


cdef int log_exchange(Log* log, Log* future, const char* gone, const char* place, Journal* journal,
                      int32_t directory, int* kept) noexcept nogil:
    cdef int code
    kept[0] = 0
    pthread_mutex_lock(&log.flush_lock)
    pthread_mutex_lock(&log.lock)
    code = exchange_locked(log, future, gone, place, journal, directory, kept)
    pthread_mutex_unlock(&log.lock)
    pthread_mutex_unlock(&log.flush_lock)
    return code
