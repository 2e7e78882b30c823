"""The structures of the shared journal: owners, groups, files. journal.pxd says who may do what."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t, pthread_t
from kbroker.ext.times cimport Histogram

cdef enum:
    JOURNAL_OK = 0
    JOURNAL_STALL = 1          # the group buffer is full: nothing was reserved, try again
    JOURNAL_FAILED = -1        # a write or a sync failed: final, the directory is offline

cdef enum:
    JOURNAL_BLOCK_BYTES = 4096      # alignment of groups, of file headers and of O_DIRECT
    JOURNAL_GROUP_HEADER_BYTES = 64
    JOURNAL_ENTRY_HEADER_BYTES = 64
    JOURNAL_FILES_MAX = 256

# What the journal calls back. `context` is the owner's log.
ctypedef struct JournalCallbacks:
    void (*retain)(void* context) noexcept nogil
    void (*release)(void* context) noexcept nogil
    # All batches of this owner below end_offset are on disk; -1: the journal has failed.
    void (*durable)(void* context, int64_t end_offset) noexcept nogil
    # Put all that was appended so far on disk (fdatasync of the segments). 0 or an errno; EAGAIN:
    # not now, and nothing has failed.
    int (*sync)(void* context) noexcept nogil

# One partition as the journal sees it; embedded in the log, guarded by the journal lock.
ctypedef struct JournalOwner:
    void* context
    uint8_t topic_id[16]
    int32_t partition
    int64_t end_offset[2]           # of the newest batch in group 0 and in group 1
    uint8_t in_group[2]
    uint8_t sync_with_group[2]      # the group holds a batch too large for the buffer
    JournalOwner* next_in_group[2]
    uint64_t file_sequence          # the newest file on whose owner list this owner stands
    int32_t has_left                # for another directory's journal, synced; atomic
    JournalOwner* before            # the one that the log had until then

ctypedef struct JournalGroup:
    uint8_t* buffer                 # aligned; entries begin after block and group header
    uint32_t used                   # bytes of the group header and of the entries placed so far
    uint32_t count
    int64_t inflight                # atomic: placed, and still being copied
    JournalOwner* owners
    int64_t opened_ns               # when its first entry came: bounds the wait of acks=1

ctypedef struct JournalFile:
    int fd
    uint32_t index                  # its N in .kbroker-journal.N
    uint64_t sequence               # order of use; 0 = never used
    int32_t is_free                     # may be taken into use
    int32_t is_sealed                   # full; waits for its owners' segments to be synced
    int64_t bytes_max
    int64_t position                # next group begins here
    JournalOwner** owners           # whose batches it holds; retained
    uint32_t owners_count
    uint32_t owners_capacity

ctypedef struct Journal:
    JournalCallbacks call
    char* directory
    uint64_t salt
    uint64_t group_sequence
    uint64_t file_sequence
    uint32_t group_bytes
    int64_t file_bytes
    int64_t bytes_max
    int64_t interval_ns

    pthread_mutex_t lock
    pthread_cond_t wanted           # the flusher sleeps here
    pthread_cond_t moved            # a group was written or a file was freed
    JournalGroup groups[2]
    int32_t current                     # the group that takes entries
    uint64_t admitted               # bytes reserved and not yet placed: there is room for them
    int32_t demand                      # somebody waits: write the current group now
    int32_t sleeping                # the flusher: 1 within the interval, 2 until it is woken
    int32_t stalled                     # somebody was refused since the last group
    int32_t stopping                    # 1: the flusher ends, 2: the checkpointer; atomic
    int32_t failed                      # errno of the write or sync that failed

    JournalFile* files[JOURNAL_FILES_MAX]
    uint32_t files_count
    JournalFile* active             # the flusher's
    int32_t preparing                   # a file is being created, or spare files unlinked
    int32_t spare_hinted                # the active file is half full: a spare one is wanted
    uint64_t hinted                 # sequence of the file for which that was told
    pthread_t flusher
    pthread_t checkpointer
    int32_t running
    pthread_cond_t sealed           # the checkpointer sleeps here
    void (*unstall)(void* argument) noexcept nogil
    void* unstall_argument
    # statistics, written by the flusher alone
    int64_t groups_written
    int64_t bytes_written
    int64_t flush_ns_total
    int64_t batches_written
    Histogram syncs                 # ns of a group's write and sync
    Histogram sizes                 # bytes of a group

# A promise of room, held from the decision to append until the batch is in the segment.
ctypedef struct Reservation:
    JournalOwner* owner
    uint32_t size                   # of the entry; 0: too large for a group, see journal_commit
