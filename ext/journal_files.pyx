"""Files `.kbroker-journal.N` in the log directory, N from 0: Apache Kafka passes over such names.

    0     magic "KBJRNL01"   8  salt   16  file sequence   24  bytes of the file
    32    crc32c of 0..31
    40    sequence of the file's first group   48  crc32c of 40..47 (earlier: zeros)
    4096  groups, each at a multiple of 4096, to the first one that does not follow

All of a file's blocks are written (zeros) before its first use, so that a sync has no extent and
no size to commit; and they are used again and again, so that stays true. A file's sequence grows
each time it is taken into use. Files are freed in the order of use, once the segments of all
owners that have batches in them were synced (the checkpointer's work): from the oldest file that
is still needed on, sequences follow each other without a gap.

A freed file's header is wiped, and that is synced, before it is used again. Its next header comes
to the disk with its next first group, or that group comes alone: behind the header of the lap
before it would be the first group of the oldest file, and a walk would end with it, before all
that was acknowledged since.

Rate decides how many there are: one small file at the start; the next is made while the active
one is half full; up to `bytes_max` in all. Beyond that the flusher waits for the checkpointer,
the group buffer fills and producers are held back. Spare files go after a minute without use.

Concurrency: `active` is the flusher's alone; flags, owner lists and the table of files are
guarded by the journal lock.
"""
from libc.errno cimport ENOSYS
from libc.stdint cimport uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_load_i32, atomic_store_relaxed_u32
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.crc32c cimport crc32c
from kbroker.ext.endian cimport store_be32, store_be64
from kbroker.ext.journal_state cimport (
    JOURNAL_BLOCK_BYTES,
    JOURNAL_FILES_MAX,
    JournalFile,
)
from kbroker.ext.posix cimport (
    EAGAIN,
    EINTR,
    EINVAL,
    EIO,
    ENOMEM,
    ENOSPC,
    EOPNOTSUPP,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECT,
    O_DIRECTORY,
    O_RDONLY,
    O_RDWR,
    O_TRUNC,
    close,
    errno,
    fallocate,
    fdatasync,
    fsync,
    open as posix_open,
    posix_memalign,
    pthread_cond_broadcast,
    pthread_cond_signal,
    pthread_cond_timedwait,
    pthread_cond_wait,
    pthread_mutex_lock,
    pthread_mutex_unlock,
    pwrite,
    snprintf,
    timespec_t,
    unlink,
)
from kbroker.ext.sockets cimport thread_name, usleep
from kbroker.ext.syncs cimport file_sync

cdef enum:
    FIRST_FILE_BYTES = 16777216
    ZEROS_BYTES = 1048576
    PATH_BYTES = 4096
    SPARE_KEPT_SECONDS = 60
    SYNC_PAUSE_US = 100000
    SYNC_TRIES_AT_STOP = 30     # three seconds of such pauses


cdef int file_write(int fd, const uint8_t* data, int64_t size, int64_t position) noexcept nogil:
    cdef ssize_t written
    while size > 0:
        written = pwrite(fd, data, <size_t>size, position)
        if written < 0:
            if errno == EINTR:
                continue
            return errno
        if written == 0:
            return EIO
        data += written
        size -= written
        position += written
    return 0


cdef extern from * nogil:
    """
    static void set_errno(int code) { errno = code; }
    """
    void set_errno(int code)


cdef int directory_sync(const char* path) noexcept nogil:
    cdef int fd = posix_open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0)
    cdef int code
    if fd < 0:
        return errno
    code = file_sync(fd)
    close(fd)
    return code


cdef int fill_with_zeros(int fd, int64_t size) noexcept nogil:
    cdef uint8_t* zeros = NULL
    cdef int64_t position = 0
    cdef int64_t part
    cdef int code = 0
    if posix_memalign(<void**>&zeros, JOURNAL_BLOCK_BYTES, ZEROS_BYTES) != 0:
        return ENOSPC
    memset(zeros, 0, ZEROS_BYTES)
    while position < size and code == 0:
        part = min(<int64_t>ZEROS_BYTES, size - position)
        code = file_write(fd, zeros, part, position)
        position += part
    free(zeros)
    if code == 0 and fdatasync(fd) != 0:
        code = errno
    return code


cdef int reserve_blocks(int fd, int64_t size, bint prepare) noexcept nogil:
    """Have blocks on disk. They are written where the file system cannot reserve them (ext2, NFS,
    FUSE). 0 or an errno."""
    if fallocate(fd, 0, 0, size) == 0:
        if not prepare:
            return 0 if fsync(fd) == 0 else errno
    elif errno != EOPNOTSUPP and errno != ENOSYS:
        return errno
    return fill_with_zeros(fd, size)


cdef void file_path(Journal* journal, uint32_t index, char* out) noexcept nogil:
    snprintf(out, PATH_BYTES, b"%s/.kbroker-journal.%u", journal.directory, index)


cdef JournalFile* file_create(Journal* journal, uint32_t index, int64_t size,
                              bint prepare) noexcept nogil:
    """A free file of `size` bytes on disk, or NULL with errno. Nothing is left when it fails.

    prepare: write its blocks. Without, they are only reserved and the first lap is slower.
    """
    cdef char path[PATH_BYTES]
    cdef JournalFile* file
    cdef int flags = O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC
    cdef int code = 0
    cdef int fd
    file_path(journal, index, path)
    fd = posix_open(path, flags | O_DIRECT, 0o600)
    if fd < 0 and errno == EINVAL:
        fd = posix_open(path, flags, 0o600)      # a file system without O_DIRECT
    if fd < 0:
        return NULL
    file = <JournalFile*>calloc(1, sizeof(JournalFile))
    code = reserve_blocks(fd, size, prepare) if file != NULL else ENOMEM
    if code == 0:
        code = directory_sync(journal.directory)
    if code:
        close(fd)
        unlink(path)
        free(file)
        set_errno(code)
        return NULL
    file.fd = fd
    file.index = index
    file.bytes_max = size
    file.is_free = 1
    return file


cdef int64_t bytes_of_all(Journal* journal) noexcept nogil:
    cdef int64_t total = 0
    cdef uint32_t i
    for i in range(journal.files_count):
        total += journal.files[i].bytes_max
    return total


cdef int64_t files_bytes(Journal* journal) noexcept nogil:
    cdef int64_t total
    pthread_mutex_lock(&journal.lock)
    total = bytes_of_all(journal)
    pthread_mutex_unlock(&journal.lock)
    return total


cdef uint32_t unused_index(Journal* journal) noexcept nogil:
    cdef uint32_t index = 0
    cdef uint32_t i = 0
    while i < journal.files_count:
        if journal.files[i].index == index:
            index += 1
            i = 0
        else:
            i += 1
    return index


cdef bint may_grow(Journal* journal) noexcept nogil:
    return (journal.files_count < JOURNAL_FILES_MAX
            and bytes_of_all(journal) + journal.file_bytes <= journal.bytes_max)


cdef JournalFile* oldest(Journal* journal, bint is_free) noexcept nogil:
    """The free, or the sealed and not yet freed, file of the lowest sequence; NULL: none."""
    cdef JournalFile* found = NULL
    cdef JournalFile* file
    cdef uint32_t i
    for i in range(journal.files_count):
        file = journal.files[i]
        if file.is_free == is_free and file != journal.active \
                and (found == NULL or file.sequence < found.sequence):
            found = file
    return found


cdef int write_header(Journal* journal, JournalFile* file, uint64_t sequence,
                      uint64_t first_group) noexcept nogil:
    """Record the file's place in the order (0: it holds nothing) and what its first group will be,
    which says that all groups before are on disk."""
    cdef uint8_t* block = NULL
    cdef int code
    if posix_memalign(<void**>&block, JOURNAL_BLOCK_BYTES, JOURNAL_BLOCK_BYTES) != 0:
        return ENOSPC
    memset(block, 0, JOURNAL_BLOCK_BYTES)
    if sequence:
        memcpy(block, b"KBJRNL01", 8)
        store_be64(block + 8, journal.salt)
        store_be64(block + 16, sequence)
        store_be64(block + 24, <uint64_t>file.bytes_max)
        store_be32(block + 32, crc32c(block, 32))
        store_be64(block + 40, first_group)
        store_be32(block + 48, crc32c(block + 40, 8))
    code = file_write(file.fd, block, JOURNAL_BLOCK_BYTES, 0)
    free(block)
    return code


cdef int take_into_use(Journal* journal, JournalFile* file, uint64_t first_group) noexcept nogil:
    """Make a file the active one. Its header is synced with its first group."""
    cdef int code
    journal.file_sequence += 1
    code = write_header(journal, file, journal.file_sequence, first_group)
    pthread_mutex_lock(&journal.lock)
    file.sequence = journal.file_sequence
    file.position = JOURNAL_BLOCK_BYTES
    file.is_free = 0
    journal.active = file
    pthread_cond_signal(&journal.sealed)
    pthread_mutex_unlock(&journal.lock)
    return code


cdef int files_open_first(Journal* journal) noexcept nogil:
    cdef int64_t size = max(<int64_t>journal.group_bytes + 2 * JOURNAL_BLOCK_BYTES,
                            min(journal.file_bytes, <int64_t>FIRST_FILE_BYTES))
    cdef JournalFile* file
    size = (size + JOURNAL_BLOCK_BYTES - 1) & ~<int64_t>(JOURNAL_BLOCK_BYTES - 1)
    journal.file_bytes = max(size, journal.file_bytes)
    file = file_create(journal, 0, size, True)
    if file == NULL:
        return errno
    journal.files[0] = file
    journal.files_count = 1
    return take_into_use(journal, file, journal.group_sequence)


cdef void grow(Journal* journal, bint prepare) noexcept nogil:
    """Lock held, released meanwhile: one more file. On a full disk there is just none."""
    cdef uint32_t index = unused_index(journal)
    cdef JournalFile* file
    journal.preparing = 1
    pthread_mutex_unlock(&journal.lock)
    file = file_create(journal, index, journal.file_bytes, prepare)
    pthread_mutex_lock(&journal.lock)
    journal.preparing = 0
    if file != NULL:
        journal.files[journal.files_count] = file
        atomic_store_relaxed_u32(&journal.files_count, journal.files_count + 1)
    pthread_cond_broadcast(&journal.moved)


cdef int files_next(Journal* journal, uint64_t group) noexcept nogil:
    """Seal the active file and take the next one into use, for this group on. 0 or an errno."""
    cdef JournalFile* file
    cdef bint tried_to_grow = False
    pthread_mutex_lock(&journal.lock)
    journal.active.is_sealed = 1
    journal.active = NULL
    pthread_cond_signal(&journal.sealed)
    file = oldest(journal, True)
    while file == NULL and not journal.failed:
        if not tried_to_grow and not journal.preparing and may_grow(journal):
            tried_to_grow = True
            grow(journal, False)
        else:
            pthread_cond_wait(&journal.moved, &journal.lock)
        file = oldest(journal, True)
    if file != NULL:
        file.is_free = 0
    pthread_mutex_unlock(&journal.lock)
    if file == NULL:
        return journal.failed
    return take_into_use(journal, file, group)


cdef void files_hint(Journal* journal) noexcept nogil:
    """Flusher, after a group: wake the checkpointer, once a file, to make a spare one."""
    if journal.active.position * 2 <= journal.active.bytes_max \
            or journal.hinted == journal.active.sequence:
        return
    pthread_mutex_lock(&journal.lock)
    journal.hinted = journal.active.sequence
    journal.spare_hinted = 1
    pthread_cond_signal(&journal.sealed)
    pthread_mutex_unlock(&journal.lock)


cdef void file_note_owner(Journal* journal, JournalOwner* owner) noexcept nogil:
    """Lock held: the active file has batches of this owner; keep it until it was synced."""
    cdef JournalFile* file = journal.active
    cdef JournalOwner** grown
    if file == NULL or owner.file_sequence == file.sequence:
        return
    if file.owners_count == file.owners_capacity:
        file.owners_capacity = max(<uint32_t>16, file.owners_capacity * 2)
        grown = <JournalOwner**>realloc(file.owners, file.owners_capacity * sizeof(void*))
        if grown == NULL:
            journal.failed = ENOSPC      # without the list the file could never be freed
            return
        file.owners = grown
    owner.file_sequence = file.sequence
    journal.call.retain(owner.context)
    file.owners[file.owners_count] = owner
    file.owners_count += 1


# -- the checkpointer -----------------------------------------------------------------------

cdef void drop_owners(Journal* journal, JournalFile* file) noexcept nogil:
    cdef uint32_t i
    for i in range(file.owners_count):
        journal.call.release(file.owners[i].context)
    free(file.owners)
    file.owners = NULL
    file.owners_count = 0
    file.owners_capacity = 0


cdef int owner_sync(Journal* journal, JournalOwner* owner) noexcept nogil:
    """Sync the segments of an owner. One that is put off is tried again until it is done; not for
    long once this is to stop, which waits for us, and not at all when nobody else is left. What has
    left for another disk is on it, and that disk's errors are not this one's."""
    cdef int code = 0 if atomic_load_i32(&owner.has_left) else journal.call.sync(owner.context)
    cdef int tries = 0
    while code == EAGAIN and tries < SYNC_TRIES_AT_STOP \
            and atomic_load_i32(&journal.stopping) < 2:
        usleep(SYNC_PAUSE_US)
        tries += atomic_load_i32(&journal.stopping) != 0
        code = journal.call.sync(owner.context)
    return 0 if atomic_load_i32(&owner.has_left) else code


cdef void checkpoint_file(Journal* journal, JournalFile* file) noexcept nogil:
    """Sync the segments of all owners of a sealed file; then the file may be written again, and
    says so before it is."""
    cdef uint32_t i
    cdef int code = 0
    for i in range(file.owners_count):
        if code == 0:
            code = owner_sync(journal, file.owners[i])
    drop_owners(journal, file)
    if code == 0:
        code = write_header(journal, file, 0, 0)
    if code == 0 and fdatasync(file.fd) != 0:
        code = errno
    pthread_mutex_lock(&journal.lock)
    if code == 0:
        file.is_free = 1
        file.is_sealed = 0
    elif code == EAGAIN and journal.stopping == 2:
        pass                    # nobody wants the file any more: whoever closes the logs syncs them
    elif not journal.failed:
        journal.failed = code
    pthread_cond_broadcast(&journal.moved)
    pthread_mutex_unlock(&journal.lock)


cdef void file_remove(Journal* journal, JournalFile* file) noexcept nogil:
    cdef char path[PATH_BYTES]
    file_path(journal, file.index, path)
    close(file.fd)
    unlink(path)
    free(file)


cdef uint32_t take_spares(Journal* journal, bint in_use, JournalFile** spares) noexcept nogil:
    """Take the files out of the table that nobody needed for a while, and return how many. While
    groups are written, one file stays that was created for the second half of the active file."""
    cdef bint keep = in_use and journal.active != NULL \
        and journal.hinted == journal.active.sequence
    cdef uint32_t count = 0
    cdef uint32_t i = 0
    if not in_use:
        journal.hinted = 0
    while i < journal.files_count:
        if journal.files[i].is_free and not keep:
            spares[count] = journal.files[i]
            count += 1
            atomic_store_relaxed_u32(&journal.files_count, journal.files_count - 1)
            journal.files[i] = journal.files[journal.files_count]
        else:
            keep = keep and not journal.files[i].is_free
            i += 1
    return count


cdef void drop_spares(Journal* journal, bint in_use) noexcept nogil:
    """Give back the disk space of spare files. The lock is released meanwhile, since every append
    needs it; `preparing` keeps the flusher from creating a file of the same name."""
    cdef JournalFile* spares[JOURNAL_FILES_MAX]
    cdef uint32_t count
    cdef uint32_t i
    if journal.preparing:
        return                      # tried again a minute later
    count = take_spares(journal, in_use, spares)
    journal.preparing = 1
    pthread_mutex_unlock(&journal.lock)
    for i in range(count):
        file_remove(journal, spares[i])
    pthread_mutex_lock(&journal.lock)
    journal.preparing = 0
    pthread_cond_broadcast(&journal.moved)


cdef bint wait_for_work(Journal* journal) noexcept nogil:
    """Lock held. False: a minute went by without a file being sealed."""
    cdef timespec_t at
    cdef int64_t due = monotonic_ns() + <int64_t>SPARE_KEPT_SECONDS * 1000000000
    if oldest(journal, True) == NULL:
        pthread_cond_wait(&journal.sealed, &journal.lock)
        return True
    at.tv_sec = due // 1000000000
    at.tv_nsec = due % 1000000000
    return pthread_cond_timedwait(&journal.sealed, &journal.lock, &at) == 0


cdef void* journal_checkpointer(void* argument) noexcept nogil:
    cdef Journal* journal = <Journal*>argument
    cdef JournalFile* file
    cdef int64_t groups
    thread_name("kbroker-chkpt")
    pthread_mutex_lock(&journal.lock)
    while journal.stopping < 2:
        groups = journal.groups_written
        file = oldest(journal, False)
        if file != NULL and file.is_sealed and not journal.failed:
            pthread_mutex_unlock(&journal.lock)
            checkpoint_file(journal, file)
            pthread_mutex_lock(&journal.lock)
        elif journal.spare_hinted:
            journal.spare_hinted = 0
            if oldest(journal, True) == NULL and may_grow(journal):
                grow(journal, True)
        elif not wait_for_work(journal) and journal.stopping < 2:
            drop_spares(journal, journal.groups_written != groups)
    pthread_mutex_unlock(&journal.lock)
    return NULL


cdef void files_close(Journal* journal, bint unlink_files) noexcept nogil:
    """Close all files of a stopped journal, and unlink them when nothing in them is needed."""
    cdef uint32_t i
    while journal.files_count:
        i = journal.files_count - 1
        drop_owners(journal, journal.files[i])
        journal.files_count = i
        if unlink_files:
            file_remove(journal, journal.files[i])
        else:
            close(journal.files[i].fd)
            free(journal.files[i])
    journal.active = NULL
