"""Folders of many partitions in one call: created, renamed, removed.

A topic has as many folders as partitions, and a request may bring thousands. Each function takes a
list and does the system calls of all of it without the GIL. Python work is some two microseconds an
element, so the caller passes as many elements as may hold the GIL at once.

partition.metadata has the same text in each folder of a topic. It is written once for a run of
folders of one topic and hard-linked into the others: a link costs a third of an inode, to create
and to remove. Only a start after a crash that lost the text writes into the file again, and that is
the same text. Where the file system refuses a link, the folder gets a file of its own.
"""
import os

from libc.errno cimport errno
from libc.stdint cimport int32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, strcmp

from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.epochs cimport epochs_assign
from kbroker.ext.log cimport Log, fill_config
from kbroker.ext.log_recovery cimport OpenArgs, log_create
from kbroker.ext.log_retention cimport log_mark_deleted
from kbroker.ext.log_state cimport LogConfig, log_set_leader_epoch, log_unref
from kbroker.ext.log_state cimport Log as LogStruct
from kbroker.ext.posix cimport (
    DIR,
    EEXIST,
    EIO,
    ENOENT,
    ENOMEM,
    ENOSPC,
    O_CLOEXEC,
    O_CREAT,
    O_DIRECTORY,
    O_EXCL,
    O_NOFOLLOW,
    O_RDONLY,
    O_WRONLY,
    close,
    closedir,
    dirent_t,
    fdopendir,
    link,
    mkdir,
    open,
    readdir,
    rename,
    rmdir,
    snprintf,
    ssize_t,
    unlinkat,
    write,
)

cdef enum:
    PATH_BYTES = 4096
    TOPIC_ID_BYTES = 16

cdef const char* METADATA = "partition.metadata"

ctypedef struct Creation:
    OpenArgs args
    LogConfig cfg
    const char* metadata                # the text of partition.metadata
    int32_t metadata_bytes
    int32_t leader_epoch
    int error                           # an errno, or 0
    LogStruct* log

ctypedef struct Removal:
    LogStruct* log                      # NULL: there is none
    const char* folder
    const char* target
    int error


# ---- create

cdef int metadata_path(const char* folder, char* out) noexcept nogil:
    cdef int n = snprintf(out, PATH_BYTES, "%s/%s", folder, METADATA)
    return 0 if n < PATH_BYTES else EIO


cdef int write_metadata(const char* path, const char* text, int32_t bytes) noexcept nogil:
    """Not synced: where a crash loses the text, the next start writes it again."""
    cdef int error = 0
    cdef ssize_t done
    cdef int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o644)
    if fd < 0:
        return errno
    done = write(fd, text, bytes)
    if done != bytes:
        error = errno if done < 0 else ENOSPC
    close(fd)
    return error


cdef int place_metadata(const Creation* c, const Creation* before) noexcept nogil:
    """Link the file of the folder before, where that is of the same topic, or write one."""
    cdef char path[PATH_BYTES]
    cdef char source[PATH_BYTES]
    cdef int error = metadata_path(c.args.dir, path)
    if error:
        return error
    if before != NULL and before.error == 0 \
            and memcmp(before.args.topic_id, c.args.topic_id, TOPIC_ID_BYTES) == 0 \
            and metadata_path(before.args.dir, source) == 0 and link(source, path) == 0:
        return 0
    return write_metadata(path, c.metadata, c.metadata_bytes)


cdef int create(Creation* c, const Creation* before) noexcept nogil:
    """0 or an errno; EEXIST: something has the folder's name, and nothing was done."""
    cdef int error
    cdef int code
    if mkdir(c.args.dir, 0o755) != 0:
        return errno
    error = place_metadata(c, before)
    if error:
        return EIO if error == EEXIST else error
    c.log = log_create(&c.args, &code)
    if c.log == NULL:
        return ENOMEM
    if epochs_assign(&c.log.epochs, c.leader_epoch, c.log.leo) != 0:
        return ENOMEM
    log_set_leader_epoch(c.log, c.leader_epoch)
    return 0


cdef bint take_creation(Creation* c, tuple wanted, list texts) except False:
    """The arguments of one log; `texts` keeps what they point to."""
    directory, topic, topic_id, partition, _, leader_epoch, metadata = wanted
    cdef bytes encoded_directory = os.fsencode(directory)
    cdef bytes encoded_topic = topic.encode()
    cdef bytes id_bytes = topic_id
    cdef bytes metadata_text = metadata
    if len(id_bytes) != TOPIC_ID_BYTES:
        raise ValueError("a topic id has 16 bytes")
    texts.append((encoded_directory, encoded_topic, id_bytes, metadata_text))
    c.args.dir = encoded_directory
    c.args.topic = encoded_topic
    c.args.topic_id = id_bytes
    c.args.partition = partition
    c.args.cfg = &c.cfg
    c.args.clean = True
    c.args.now_ms = realtime_ms()
    c.metadata = metadata_text
    c.metadata_bytes = <int32_t> len(metadata_text)
    c.leader_epoch = leader_epoch
    return True


cdef object created(Creation* c, tuple wanted):
    cdef Log log
    if c.error:
        if c.log != NULL:
            log_unref(c.log)
        return OSError(c.error, os.strerror(c.error), wanted[0])
    log = Log.__new__(Log)
    log.core = c.log
    return log


def create_logs(list wanted not None):
    """Create the folders and the logs of new partitions: a log or an OSError for each element
    (directory, topic, topic id, partition, settings, leader epoch, text of partition.metadata).

    FileExistsError: something has the folder's name, and nothing was done. The caller syncs the
    parent directory. Partitions of one topic share a file where they are neighbours in the list.
    """
    cdef Py_ssize_t count = len(wanted)
    cdef Py_ssize_t i
    cdef list texts = []
    cdef object config = None
    cdef Creation* all = <Creation*> calloc(<size_t> max(count, 1), sizeof(Creation))
    if all == NULL:
        raise MemoryError("no memory for the arguments of new logs")
    try:
        for i in range(count):
            take_creation(&all[i], wanted[i], texts)
            if i > 0 and wanted[i][4] is config:
                all[i].cfg = all[i - 1].cfg
            else:
                config = wanted[i][4]
                fill_config(&all[i].cfg, config)
        with nogil:
            for i in range(count):
                all[i].error = create(&all[i], &all[i - 1] if i > 0 else NULL)
        return [created(&all[i], wanted[i]) for i in range(count)]
    finally:
        free(all)


# ---- end

def end_logs(list wanted not None):
    """Mark logs as deleted and rename their folders: 0 or the errno of the rename for each element
    (log or None, folder, new name). The caller syncs the parent directory."""
    cdef Py_ssize_t count = len(wanted)
    cdef Py_ssize_t i
    cdef list texts = []
    cdef bytes folder
    cdef bytes target
    cdef Removal* all = <Removal*> calloc(<size_t> max(count, 1), sizeof(Removal))
    if all == NULL:
        raise MemoryError("no memory for the names of deleted logs")
    try:
        for i in range(count):
            log, path, new_path = wanted[i]
            folder, target = os.fsencode(path), os.fsencode(new_path)
            texts.append((log, folder, target))
            all[i].log = (<Log?> log).core if log is not None else NULL
            all[i].folder = folder
            all[i].target = target
        with nogil:
            for i in range(count):
                if all[i].log != NULL:
                    log_mark_deleted(all[i].log)
                all[i].error = errno if rename(all[i].folder, all[i].target) != 0 else 0
        return [all[i].error for i in range(count)]
    finally:
        free(all)


# ---- remove

cdef void unlink_all(int fd) noexcept nogil:
    """Unlink every file of an open folder, and close it. A folder within stays, and the caller
    finds that in its rmdir."""
    cdef dirent_t* entry
    cdef DIR* folder = fdopendir(fd)
    if folder == NULL:
        close(fd)
        return
    while True:
        entry = readdir(folder)
        if entry == NULL:
            break
        if strcmp(entry.d_name, ".") != 0 and strcmp(entry.d_name, "..") != 0:
            unlinkat(fd, entry.d_name, 0)
    closedir(folder)


cdef int remove_one(const char* path) noexcept nogil:
    """A log that was never appended to has one file, whose name is known."""
    cdef int fd = open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC, 0)
    if fd < 0:
        return 0 if errno == ENOENT else errno
    unlinkat(fd, METADATA, 0)
    if rmdir(path) == 0 or errno == ENOENT:
        close(fd)
        return 0
    unlink_all(fd)
    return 0 if rmdir(path) == 0 or errno == ENOENT else errno


def remove_folders(list paths not None):
    """Remove folders with their files: 0 or an errno for each. A folder that is not there counts
    as removed; ENOTEMPTY: there are folders within."""
    cdef Py_ssize_t count = len(paths)
    cdef Py_ssize_t i
    cdef list texts = [os.fsencode(path) for path in paths]
    cdef Removal* all = <Removal*> calloc(<size_t> max(count, 1), sizeof(Removal))
    if all == NULL:
        raise MemoryError("no memory for the names of folders")
    try:
        for i in range(count):
            all[i].folder = <bytes> texts[i]
        with nogil:
            for i in range(count):
                all[i].error = remove_one(all[i].folder)
        return [all[i].error for i in range(count)]
    finally:
        free(all)
