"""The Python API of the write-ahead log's files: list, read and remove them."""
import os
import re
from collections import Counter
from typing import NamedTuple

from kbroker.errors import DiskError, OperatorError

from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memset

from kbroker.ext.endian cimport load_be64
from kbroker.ext.journal_state cimport JOURNAL_BLOCK_BYTES
from kbroker.ext.journal_walk cimport (
    WALK_BAD_HEADER,
    WALK_CUT_SHORT,
    WALK_TOO_MANY,
    JournalWalk,
    WalkFile,
    read_header,
    walk_add_file,
    walk_begin,
    walk_end,
    walk_next,
    walk_resume,
)

_NAME = re.compile(r"\.kbroker-journal\.\d+")
_SKIP = ".kbroker-journal.skip-damage"
_FAULTS = {
    WALK_BAD_HEADER: "its header has a wrong checksum",
    WALK_CUT_SHORT: "it is shorter than its header says",
    WALK_TOO_MANY: "there are too many files",
}


class Entry(NamedTuple):
    """One entry of a write-ahead log."""

    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    batch: bytes


class WalError(OperatorError):
    """A write-ahead log that cannot be read, or is damaged.

    reasons: (path, text) of each cause. following: how many batches of each (topic id, partition)
    come behind the damage.
    """

    def __init__(self, directory, reasons, following=None):
        self.reasons = list(reasons)
        self.following = dict(following or {})
        causes = "; ".join(f"{path}: {text}" for path, text in self.reasons)
        super().__init__(f"the write-ahead log in {directory} cannot be read: {causes}")


def files(directory):
    """Return the paths of the WAL files in a log directory: none after a clean stop."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise DiskError(directory, error) from None
    return sorted(os.path.join(directory, name) for name in names if _NAME.fullmatch(name))


def skips_damage(directory):
    """Return whether the next start may skip what is damaged in the WAL."""
    return os.path.lexists(os.path.join(directory, _SKIP))


def skip_damage(directory):
    """Let the next start skip what is damaged in the WAL, durably."""
    with open(os.path.join(directory, _SKIP), "wb") as file:
        os.fsync(file.fileno())
    _sync(directory)


def remove(directory, damaged=()):
    """Unlink the WAL durably, when all that it holds is in synced segments.

    damaged: files that are kept for an examination, as NAME.damaged. The oldest file goes first,
    so that what a crash leaves is a WAL without a gap.
    """
    paths = files(directory)
    paths.sort(key=_sequence)
    for path in paths:
        if path in damaged:
            os.rename(path, f"{path}.damaged")
        else:
            os.unlink(path)
    if skips_damage(directory):
        os.unlink(os.path.join(directory, _SKIP))
    _sync(directory)


def _sync(directory):
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def _sequence(path):
    """Return the sequence that the header of a file has; 0 for one that cannot be read."""
    cdef uint8_t block[JOURNAL_BLOCK_BYTES]
    cdef int64_t size
    if read_header(os.fsencode(path), block, &size) != 0:
        return 0
    return load_be64(block + 16)


cdef class JournalReader:
    """A walk over the WAL of a log directory.

    Raises WalError when a file cannot be read or a file is missing between others, unless
    `skip_damage` is set. `finish` raises it when the walk ended at damage.
    """

    def __cinit__(self, directory, *, bint skip_damage=False):
        cdef int code
        memset(&self.walk, 0, sizeof(JournalWalk))
        self.walk.fd = -1
        self.walk.skip_damage = skip_damage
        self.directory = directory
        self.paths = [os.fsencode(path) for path in files(directory)]
        self.reasons = {}
        for path in self.paths:
            code = walk_add_file(&self.walk, path)
            if code:
                self.reasons[os.fsdecode(path)] = _FAULTS.get(code) or os.strerror(code)
        walk_begin(&self.walk)
        self.check_order()
        if self.reasons and not skip_damage:
            raise WalError(directory, self.reasons.items())

    def __dealloc__(self):
        walk_end(&self.walk)

    cdef object topic_id(self):
        return (<const char*>self.walk.topic_id)[:16]

    cdef object key(self):
        return self.topic_id(), self.walk.partition

    cdef object path(self, uint32_t file):
        return os.fsdecode(self.walk.files[file].path)

    cdef int check_order(self) except -1:
        """Find files that are missing: sequences have no gap, and one start has one salt."""
        cdef WalkFile* before
        cdef WalkFile* file
        cdef uint32_t i
        for i in range(1, self.walk.used_count):
            before, file = &self.walk.files[i - 1], &self.walk.files[i]
            if file.salt != before.salt:
                reason = f"it is of another start of the broker than {self.path(i - 1)}"
            elif file.sequence != before.sequence + 1:
                reason = f"a file is missing between {self.path(i - 1)} and it"
            else:
                continue
            self.reasons.setdefault(self.path(i), reason)
        return 0

    cdef object damage(self):
        """Return the path, and a text that says where the WAL is damaged."""
        where = f"commit group {self.walk.damaged_group} at byte {self.walk.damaged_position}"
        reason = f"{where} is damaged, and later groups were written"
        if self.walk.error:
            reason = f"{where}: {os.strerror(self.walk.error)}"
        return self.path(self.walk.damaged_file), reason

    cdef int finish(self) except -1:
        """Raise WalError when the walk, which has ended, ended at damage."""
        if self.walk.damages == 0 or self.walk.skip_damage:
            return 0
        reason = self.damage()
        following = Counter()
        walk_resume(&self.walk)
        while walk_next(&self.walk):
            following[self.key()] += 1
        raise WalError(self.directory, [reason], following)

    cdef list skipped(self):
        """Return what was skipped, a text for each cause."""
        causes = list(self.reasons.items())
        more = ""
        if self.walk.damages:
            causes.append(self.damage())
            more = f", and {self.walk.damages - 1} more places" if self.walk.damages > 1 else ""
        return [f"{path}: {text}{more}" for path, text in causes]

    cdef list damaged_files(self):
        cdef uint32_t i
        damaged = [self.path(i) for i in range(self.walk.files_count)
                   if self.walk.files[i].is_damaged]
        return [*self.reasons, *damaged]


def keys(directory, *, skip_damage=False):
    """Return the topic ids and partitions that a replay would see entries of."""
    cdef JournalReader reader = JournalReader(directory, skip_damage=skip_damage)
    found = set()
    while walk_next(&reader.walk):
        found.add(reader.key())
    reader.finish()
    return found


def entries(directory, *, skip_damage=False):
    """Return all entries that a replay would see, in order."""
    cdef JournalReader reader = JournalReader(directory, skip_damage=skip_damage)
    found = []
    while walk_next(&reader.walk):
        found.append(Entry(
            reader.topic_id(), reader.walk.partition, reader.walk.base_offset,
            reader.walk.end_offset, (<const char*>reader.walk.batch)[:reader.walk.batch_bytes],
        ))
    reader.finish()
    return found
