"""Read the write-ahead log (WAL) back; the formats are in journal.pyx and journal_files.pyx.

The files are read in the order of their sequence, the commit groups in theirs: each group's
sequence is one above the last one's, within a file and across files. A crash leaves at most one
group that is not whole, and nothing was written behind it. So the end of the WAL is the first
group that is not sound and has no sound group of a higher sequence behind it. Where one follows,
the group before it was on disk and acknowledged: the WAL is damaged. The walk ends there, or with
`skip_damage` goes on at the next sound group.

A file is never taken for unused because it cannot be read. Only a header of zeros means that: the
file was made or freed, and holds nothing that is needed.

Nothing is ever written here. Files are read, not mapped: an unreadable block is an error and no
SIGBUS.
"""
from libc.stddef cimport size_t
from libc.stdlib cimport free, realloc
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
    ENOMEM,
    O_CLOEXEC,
    O_RDONLY,
    close,
    errno,
    fstat,
    open as posix_open,
    stat_t,
)
from kbroker.ext.walk cimport read_fully

cdef enum:
    GROUP_MAGIC = 0x4B424A47
    BATCH_PREFIX_BYTES = 21
    SCAN_BYTES = 1 << 20


# -- the files ------------------------------------------------------------------------------

cdef bint is_zero(const uint8_t* p, int64_t n) noexcept nogil:
    return p[0] == 0 and memcmp(p, p + 1, <size_t>n - 1) == 0


cdef int read_header(const char* path, uint8_t* block, int64_t* size) noexcept nogil:
    cdef stat_t status
    cdef int64_t got = 0
    cdef int error = 0
    cdef int fd = posix_open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return errno
    if fstat(fd, &status) != 0:
        error = errno
    else:
        got = read_fully(fd, block, JOURNAL_BLOCK_BYTES, 0)
        error = <int>-got if got < 0 else 0
    close(fd)
    if error == 0:
        size[0] = status.st_size
        memset(block + got, 0, <size_t>(JOURNAL_BLOCK_BYTES - got))
    return error


cdef int walk_add_file(JournalWalk* walk, const char* path) noexcept nogil:
    cdef uint8_t block[JOURNAL_BLOCK_BYTES]
    cdef WalkFile* file = &walk.files[walk.files_count]
    cdef int error
    if walk.files_count == WALK_FILES_MAX:
        return WALK_TOO_MANY
    memset(file, 0, sizeof(WalkFile))
    error = read_header(path, block, &file.size)
    if error:
        return error
    file.path = path
    if is_zero(block, JOURNAL_BLOCK_BYTES):
        walk.files_count += 1
        return 0
    if memcmp(block, b"KBJRNL01", 8) != 0 or load_be32(block + 32) != crc32c(block, 32):
        return WALK_BAD_HEADER
    file.salt = load_be64(block + 8)
    file.sequence = load_be64(block + 16)
    if load_be32(block + 48) == crc32c(block + 40, 8):
        file.first_group = load_be64(block + 40)
    walk.files_count += 1
    walk.used_count += 1
    return 0 if file.size >= <int64_t>load_be64(block + 24) else WALK_CUT_SHORT


cdef void walk_begin(JournalWalk* walk) noexcept nogil:
    """Sort the files by insertion, as they are few. Unused ones come last."""
    cdef WalkFile moved
    cdef uint32_t i, j
    for i in range(1, walk.files_count):
        moved = walk.files[i]
        j = i
        while j > 0 and walk.files[j - 1].sequence - 1 > moved.sequence - 1:
            walk.files[j] = walk.files[j - 1]
            j -= 1
        walk.files[j] = moved
    for i in range(walk.used_count, walk.files_count):
        walk.files[i].salt = walk.files[walk.used_count - 1].salt if walk.used_count else 0
    walk.fd = -1
    walk.position = JOURNAL_BLOCK_BYTES
    walk.ended = walk.used_count == 0


cdef void walk_end(JournalWalk* walk) noexcept nogil:
    close_file(walk)
    free(walk.group)
    walk.group = NULL
    walk.capacity = 0
    walk.files_count = 0


cdef void close_file(JournalWalk* walk) noexcept nogil:
    if walk.fd >= 0:
        close(walk.fd)
    walk.fd = -1


cdef void go_to(JournalWalk* walk, uint32_t file, int64_t position) noexcept nogil:
    if file != walk.file:
        close_file(walk)
    walk.file = file
    walk.position = position
    walk.group_length = 0


cdef int64_t read_at(JournalWalk* walk, int64_t bytes, int64_t skipped) noexcept nogil:
    """Read the file from the position on into the group buffer, whose first `skipped` bytes are
    there already. Returns how many bytes it holds then, fewer at the end of the file, or minus
    errno."""
    cdef void* larger
    if bytes > walk.capacity:
        larger = realloc(walk.group, <size_t>bytes)
        if larger == NULL:
            return -ENOMEM
        walk.group = <uint8_t*>larger
        walk.capacity = bytes
    if walk.fd < 0:
        walk.fd = posix_open(walk.files[walk.file].path, O_RDONLY | O_CLOEXEC, 0)
        if walk.fd < 0:
            return -errno
    cdef int64_t got = read_fully(walk.fd, walk.group + skipped, bytes - skipped,
                                  walk.position + skipped)
    return got if got < 0 else got + skipped


# -- groups ---------------------------------------------------------------------------------

cdef inline bint is_group(const uint8_t* head, uint64_t salt) noexcept nogil:
    return load_be32(head) == GROUP_MAGIC and load_be64(head + 8) == salt \
        and load_be32(head + 4) == crc32c(head + 8, JOURNAL_GROUP_HEADER_BYTES - 8)


cdef int enter_group(JournalWalk* walk, uint64_t wanted) noexcept nogil:
    """Read the group at the position. Returns 1, 0 where none of the sequence (0: any) is there, or
    minus errno."""
    cdef WalkFile* file = &walk.files[walk.file]
    cdef int64_t got
    cdef uint32_t length
    if walk.position + JOURNAL_GROUP_HEADER_BYTES > file.size:
        return 0
    got = read_at(walk, JOURNAL_BLOCK_BYTES, 0)
    if got < JOURNAL_GROUP_HEADER_BYTES:
        return <int>got if got < 0 else 0
    length = load_be32(walk.group + 24)
    if not is_group(walk.group, file.salt) or length < JOURNAL_GROUP_HEADER_BYTES \
            or length > file.size - walk.position \
            or (wanted and load_be64(walk.group + 16) != wanted):
        return 0
    if length > got:
        got = read_at(walk, length, got)
        if got < length:
            return <int>got if got < 0 else 0
    walk.group_sequence = load_be64(walk.group + 16)
    walk.group_length = length
    walk.offset = JOURNAL_GROUP_HEADER_BYTES
    walk.groups += 1
    return 1


cdef int scan(JournalWalk* walk, uint64_t above) noexcept nogil:
    """Move on within the file to the next group header whose sequence is above this one. Returns 1,
    0 where there is none, or minus errno."""
    cdef WalkFile* file = &walk.files[walk.file]
    cdef const uint8_t* head
    cdef int64_t got = 0
    cdef int64_t at = 0
    while True:
        if at + JOURNAL_GROUP_HEADER_BYTES > got:
            walk.position += at
            if walk.position + JOURNAL_GROUP_HEADER_BYTES > file.size:
                return 0
            got = read_at(walk, SCAN_BYTES, 0)
            if got < JOURNAL_GROUP_HEADER_BYTES:
                return <int>got if got < 0 else 0
            at = 0
        head = walk.group + at
        if is_group(head, file.salt) and load_be64(head + 16) > above:
            walk.position += at
            walk.found = load_be64(head + 16)
            return 1
        at += JOURNAL_BLOCK_BYTES


cdef bint note_damage(JournalWalk* walk, uint32_t file, int64_t position, uint64_t group,
                      int error) noexcept nogil:
    """Record the first place of damage, and each file that has some. False: the walk ends here."""
    walk.files[file].is_damaged = True
    if walk.damages == 0:
        walk.damaged_file = file
        walk.damaged_position = position
        walk.damaged_group = group
        walk.error = error
    walk.damages += 1
    return walk.skip_damage


cdef bint find_group(JournalWalk* walk, uint64_t above, uint64_t* written) noexcept nogil:
    """Move on to the next group header whose sequence is above this one, in this file or a later.

    `written` is the highest sequence that this has seen a sign of. A file was taken into use when
    all groups before its first one were on disk.
    """
    cdef int code
    while True:
        code = scan(walk, above)
        if code == 1:
            written[0] = max(written[0], walk.found)
            return True
        if code < 0 and not note_damage(walk, walk.file, walk.position, above + 1, -code):
            return False
        if walk.file + 1 == walk.files_count:
            return False
        go_to(walk, walk.file + 1, JOURNAL_BLOCK_BYTES)
        written[0] = max(written[0], walk.files[walk.file].first_group)


cdef bint seek_group(JournalWalk* walk, uint64_t missing) noexcept nogil:
    """Move on to the next sound group behind the position, where group `missing` is not sound.

    False: the walk ends. It is the end of the WAL unless a group above `missing` was written.
    """
    cdef uint32_t file = walk.file
    cdef int64_t position = walk.position
    cdef uint64_t above = walk.group_sequence
    cdef uint64_t written = 0
    cdef bint found
    walk.position += JOURNAL_BLOCK_BYTES
    walk.group_length = 0
    if above == 0 and missing:
        above = missing - 1
    elif above == 0:                    # by a version that did not record a file's first group
        if walk.file + 1 >= walk.used_count:
            return False
        go_to(walk, walk.file + 1, JOURNAL_BLOCK_BYTES)
        written = 1
    found = find_group(walk, above, &written)
    if written > missing and not note_damage(walk, file, position, missing, 0):
        return False
    return found


cdef bint next_group(JournalWalk* walk, bint broken) noexcept nogil:
    """Enter the group behind the current one, of which an entry may be `broken`."""
    cdef uint64_t missing = walk.group_sequence
    cdef int code = 0
    if not broken:
        missing = walk.group_sequence + 1 if walk.group_sequence else walk.files[0].first_group
        walk.position += (walk.group_length + JOURNAL_BLOCK_BYTES - 1) \
            & ~<int64_t>(JOURNAL_BLOCK_BYTES - 1)
        walk.group_length = 0
        code = enter_group(walk, missing)
    while code != 1:
        if code < 0 and not note_damage(walk, walk.file, walk.position, missing, -code):
            return False
        if not seek_group(walk, missing):
            return False
        code = enter_group(walk, 0)
    return True


# -- entries --------------------------------------------------------------------------------

cdef bint entry_holds(const JournalWalk* walk, const uint8_t* head, uint32_t size) noexcept nogil:
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
    cdef bint broken = False
    while not walk.ended:
        if broken or walk.group_length == 0 \
                or walk.offset + JOURNAL_ENTRY_HEADER_BYTES > walk.group_length:
            walk.ended = not next_group(walk, broken)
            broken = False
            continue
        head = walk.group + walk.offset
        size = load_be32(head + 4)
        if size > walk.group_length - walk.offset - JOURNAL_ENTRY_HEADER_BYTES \
                or not entry_holds(walk, head, size):
            broken = True
            continue
        walk.topic_id = head + 16
        walk.partition = load_i32(head + 32)
        walk.base_offset = load_i64(head + 40)
        walk.end_offset = load_i64(head + 48)
        walk.batch = head + JOURNAL_ENTRY_HEADER_BYTES
        walk.batch_bytes = size
        walk.offset += (JOURNAL_ENTRY_HEADER_BYTES + size + 7) & ~<uint32_t>7
        return True
    return False


cdef void walk_resume(JournalWalk* walk) noexcept nogil:
    """Go on behind the damage that a walk ended at."""
    walk.skip_damage = True
    walk.ended = False
    enter_group(walk, 0)
