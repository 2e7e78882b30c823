"""Reading the write-ahead log back: the files in the order of use, their groups, their entries."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    WALK_FILES_MAX = 1024
    WALK_BAD_HEADER = -1
    WALK_CUT_SHORT = -2         # the file was added all the same
    WALK_TOO_MANY = -3

ctypedef struct WalkFile:
    const char* path                # borrowed
    uint64_t salt
    uint64_t sequence               # order of use; 0: unused, its header is zeros
    uint64_t first_group            # sequence of its first group; 0: not recorded
    int64_t size
    bint is_damaged

# A position in the WAL, and the entry at it.
ctypedef struct JournalWalk:
    WalkFile files[WALK_FILES_MAX]
    uint32_t files_count
    uint32_t used_count             # these come first
    uint32_t file                   # the current one
    int fd                          # of it; -1: not open
    int64_t position                # of the current group in it
    uint8_t* group                  # the current group, as read
    int64_t capacity
    uint32_t group_length           # 0: the group at `position` was not read yet
    uint32_t offset                 # of the next entry in the group
    uint64_t group_sequence         # of the current or the last sound group; 0: none yet
    uint64_t found                  # sequence of the group header that a scan has found
    bint skip_damage                # go on behind damage
    bint ended                      # nothing more follows
    int64_t groups
    int64_t damages                 # places where the WAL is damaged; the first one:
    uint32_t damaged_file
    int64_t damaged_position
    uint64_t damaged_group          # sequence
    int error                       # errno; 0: it was read
    const uint8_t* topic_id
    int32_t partition
    int64_t base_offset
    int64_t end_offset
    const uint8_t* batch            # until the next walk_next
    uint32_t batch_bytes

# Read the header of a file. 0, an errno, or why the file cannot be used. The path must outlive the
# walk.
cdef int walk_add_file(JournalWalk* walk, const char* path) noexcept nogil
# Sort the files. After the last walk_add_file.
cdef void walk_begin(JournalWalk* walk) noexcept nogil
# The next entry whose checksums hold. False: the WAL ends here, with `damages` where it should not.
cdef bint walk_next(JournalWalk* walk) noexcept nogil
# After a walk that ended at damage: go on behind it.
cdef void walk_resume(JournalWalk* walk) noexcept nogil
cdef void walk_end(JournalWalk* walk) noexcept nogil
# Read the first block of a file, filled up with zeros. 0 or an errno.
cdef int read_header(const char* path, uint8_t* block, int64_t* size) noexcept nogil
