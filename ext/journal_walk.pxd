"""Reading a journal back: the files in the order of use, their groups, their entries."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    WALK_FILES_MAX = 1024

ctypedef struct WalkFile:
    uint64_t salt
    uint64_t sequence
    uint8_t* map
    int64_t size

# Where a walk stands, and the entry that it stands at.
ctypedef struct JournalWalk:
    WalkFile files[WALK_FILES_MAX]
    uint32_t files_count
    uint32_t file                   # the one being read
    int64_t position                # of the current group in it
    uint32_t group_length           # 0: the group at `position` was not looked at yet
    uint32_t offset                 # of the next entry in the group
    uint64_t group_sequence         # the current or the last one read; 0: none yet
    bint ended                      # nothing more follows
    int64_t groups
    int64_t torn                    # bytes of the group that ends the journal without being whole
    const uint8_t* topic_id
    int32_t partition
    int64_t base_offset
    int64_t end_offset
    const uint8_t* batch
    uint32_t batch_bytes

# Maps one file of a journal; False: it has no valid header (never taken into use).
cdef bint walk_add_file(JournalWalk* walk, const char* path) noexcept nogil
# Sorts the files and drops those before a gap. After the last walk_add_file.
cdef void walk_begin(JournalWalk* walk) noexcept nogil
# The next entry whose checksums hold. False: the journal ends here.
cdef bint walk_next(JournalWalk* walk) noexcept nogil
cdef void walk_end(JournalWalk* walk) noexcept nogil

cdef class JournalReader:
    cdef JournalWalk walk
    cdef object topic_id(self)
