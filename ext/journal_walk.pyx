"""What of a journal's files follows without a gap, and is whole; formats in journal.pyx.

Files are taken in the order of their sequence, from the last gap on. Groups follow each other by
sequence, within a file and across files; the first group of the oldest file may have any. The
journal ends at the first group that does not follow or entry that fails a checksum. Nothing is
ever written here.
"""
import os
import re
from typing import NamedTuple

from libc.stddef cimport size_t
from libc.string cimport memcmp, memset

from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_crc_ok, batch_parse
from kbroker.ext.crc32c cimport crc32c, crc32c_extend
from kbroker.ext.endian cimport load_be32, load_be64, load_i32, load_i64
from kbroker.ext.journal_state cimport (
    JOURNAL_BLOCK_BYTES,
    JOURNAL_ENTRY_HEADER_BYTES,
    JOURNAL_GROUP_HEADER_BYTES,
)
from kbroker.ext.posix cimport (
    MAP_FAILED,
    MAP_PRIVATE,
    O_CLOEXEC,
    O_RDONLY,
    PROT_READ,
    close,
    fstat,
    mmap,
    munmap,
    open as posix_open,
    stat_t,
)

cdef enum:
    GROUP_MAGIC = 0x4B424A47
    BATCH_PREFIX_BYTES = 21


cdef bint walk_add_file(JournalWalk* walk, const char* path) noexcept nogil:
    cdef stat_t status
    cdef WalkFile* file
    cdef uint8_t* mapped
    cdef int fd
    if walk.files_count == WALK_FILES_MAX:
        return False
    fd = posix_open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return False
    if fstat(fd, &status) != 0 or status.st_size < JOURNAL_BLOCK_BYTES:
        close(fd)
        return False
    mapped = <uint8_t*>mmap(NULL, <size_t>status.st_size, PROT_READ, MAP_PRIVATE, fd, 0)
    close(fd)
    if mapped == <uint8_t*>MAP_FAILED:
        return False
    if memcmp(mapped, b"KBJRNL01", 8) != 0 or load_be32(mapped + 32) != crc32c(mapped, 32):
        munmap(mapped, <size_t>status.st_size)
        return False
    file = &walk.files[walk.files_count]
    walk.files_count += 1
    file.map = mapped
    file.size = status.st_size
    file.salt = load_be64(mapped + 8)
    file.sequence = load_be64(mapped + 16)
    return True


cdef void sort_files(JournalWalk* walk) noexcept nogil:
    """By insertion: they are few."""
    cdef WalkFile moved
    cdef uint32_t i, j
    for i in range(1, walk.files_count):
        moved = walk.files[i]
        j = i
        while j > 0 and walk.files[j - 1].sequence > moved.sequence:
            walk.files[j] = walk.files[j - 1]
            j -= 1
        walk.files[j] = moved


cdef void walk_begin(JournalWalk* walk) noexcept nogil:
    cdef uint32_t first
    sort_files(walk)
    first = walk.files_count - 1 if walk.files_count else 0
    while first > 0 and walk.files[first - 1].salt == walk.files[first].salt \
            and walk.files[first - 1].sequence + 1 == walk.files[first].sequence:
        first -= 1
    walk.file = first
    walk.position = JOURNAL_BLOCK_BYTES


cdef bint enter_group(JournalWalk* walk) noexcept nogil:
    """Is there a group at the position that follows the one before?"""
    cdef WalkFile* file = &walk.files[walk.file]
    cdef const uint8_t* head = file.map + walk.position
    cdef uint64_t sequence
    cdef uint32_t length
    if walk.position + JOURNAL_GROUP_HEADER_BYTES > file.size:
        return False
    if load_be32(head) != GROUP_MAGIC or load_be64(head + 8) != file.salt \
            or load_be32(head + 4) != crc32c(head + 8, JOURNAL_GROUP_HEADER_BYTES - 8):
        return False
    sequence = load_be64(head + 16)
    length = load_be32(head + 24)
    if walk.group_sequence and sequence != walk.group_sequence + 1:
        return False
    if length < JOURNAL_GROUP_HEADER_BYTES or length > file.size - walk.position:
        return False
    walk.group_sequence = sequence
    walk.group_length = length
    walk.offset = JOURNAL_GROUP_HEADER_BYTES
    walk.groups += 1
    return True


cdef bint next_group(JournalWalk* walk) noexcept nogil:
    """Behind the current group, or at the beginning of the next file."""
    while True:
        walk.position += (walk.group_length + JOURNAL_BLOCK_BYTES - 1) \
            & ~<int64_t>(JOURNAL_BLOCK_BYTES - 1)
        walk.group_length = 0
        if enter_group(walk):
            return True
        if walk.file + 1 >= walk.files_count:
            return False
        walk.file += 1
        walk.position = JOURNAL_BLOCK_BYTES
        if enter_group(walk):
            return True
        if walk.group_sequence:
            return False            # the next file does not go on where this one ended


cdef bint entry_holds(JournalWalk* walk, const uint8_t* head, uint32_t size) noexcept nogil:
    cdef const uint8_t* batch = head + JOURNAL_ENTRY_HEADER_BYTES
    cdef BatchInfo info
    if load_be64(head + 8) != walk.files[walk.file].salt \
            or load_be64(head + 56) != walk.group_sequence:
        return False
    if batch_parse(batch, batch + size, &info) != BATCH_OK or <uint32_t>info.length != size:
        return False
    if load_be32(head) != crc32c_extend(crc32c(head + 4, JOURNAL_ENTRY_HEADER_BYTES - 4), batch,
                                        BATCH_PREFIX_BYTES):
        return False
    return batch_crc_ok(batch, &info)


cdef bint walk_next(JournalWalk* walk) noexcept nogil:
    cdef const uint8_t* head
    cdef uint32_t size
    if walk.ended or walk.files_count == 0:
        return False
    while walk.group_length == 0 or walk.offset + JOURNAL_ENTRY_HEADER_BYTES > walk.group_length:
        if not next_group(walk):
            walk.ended = True
            return False
    head = walk.files[walk.file].map + walk.position + walk.offset
    size = load_be32(head + 4)
    if size > walk.group_length - walk.offset - JOURNAL_ENTRY_HEADER_BYTES \
            or not entry_holds(walk, head, size):
        walk.torn = walk.group_length - walk.offset
        walk.ended = True
        return False
    walk.topic_id = head + 16
    walk.partition = load_i32(head + 32)
    walk.base_offset = load_i64(head + 40)
    walk.end_offset = load_i64(head + 48)
    walk.batch = head + JOURNAL_ENTRY_HEADER_BYTES
    walk.batch_bytes = size
    walk.offset += (JOURNAL_ENTRY_HEADER_BYTES + size + 7) & ~<uint32_t>7
    return True


cdef void walk_end(JournalWalk* walk) noexcept nogil:
    cdef uint32_t i
    for i in range(walk.files_count):
        munmap(walk.files[i].map, <size_t>walk.files[i].size)
    walk.files_count = 0


# -- Python's face --------------------------------------------------------------------------

_NAME = re.compile(r"\.kbroker-journal\.\d+")


class Entry(NamedTuple):
    """One entry of a journal."""

    topic_id: bytes
    partition: int
    base_offset: int
    end_offset: int
    batch: bytes


def files(directory):
    """Paths of the journal files in a log directory; empty after a clean stop."""
    found = [
        os.path.join(directory, name) for name in os.listdir(directory) if _NAME.fullmatch(name)
    ]
    found.sort()
    return found


def remove(directory):
    """Unlink the journal, and make that durable. All that it holds must be in synced segments."""
    for path in files(directory):
        os.unlink(path)
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


cdef class JournalReader:
    """A walk, its files mapped for as long as it lives."""

    def __cinit__(self, directory):
        memset(&self.walk, 0, sizeof(JournalWalk))
        for path in files(directory):
            walk_add_file(&self.walk, os.fsencode(path))
        walk_begin(&self.walk)

    def __dealloc__(self):
        walk_end(&self.walk)

    cdef object topic_id(self):
        return (<const char*>self.walk.topic_id)[:16]


def keys(directory):
    """Whose entries a replay would see: topic ids and partitions."""
    cdef JournalReader walk = JournalReader(directory)
    found = set()
    while walk_next(&walk.walk):
        found.add((walk.topic_id(), walk.walk.partition))
    return found


def entries(directory):
    """All entries that a replay would see, in order."""
    cdef JournalReader walk = JournalReader(directory)
    found = []
    while walk_next(&walk.walk):
        found.append(Entry(
            walk.topic_id(), walk.walk.partition, walk.walk.base_offset, walk.walk.end_offset,
            (<const char*>walk.walk.batch)[:walk.walk.batch_bytes],
        ))
    return found
