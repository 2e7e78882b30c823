"""The shared journal: one group commit for the batches of every partition.

Floor: below `log` (which owns the partitions), above `crc32c`. The journal knows no partition,
only owners with four callbacks, so that the log can hang on it without a circle.

Who may call what: `journal_reserve`, `journal_commit` and `journal_cancel` are called under the
owner's log lock, in the order of its offsets. `journal_demand` by anybody. The callbacks run on
the flusher (`durable`) and on the checkpointer (`sync`), never under a lock of the journal.

Lock order: log lock, then journal lock. The journal lock is a leaf: nothing is called under it
but `retain`, which is one atomic addition. `unstall` is called under a log's lock, by
`journal_cancel`: it does no more than wake.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.journal_state cimport (
    JOURNAL_BLOCK_BYTES,
    JOURNAL_ENTRY_HEADER_BYTES,
    JOURNAL_FAILED,
    JOURNAL_GROUP_HEADER_BYTES,
    JOURNAL_OK,
    JOURNAL_STALL,
    Journal,
    JournalCallbacks,
    JournalOwner,
    Reservation,
)

cdef void journal_owner_init(JournalOwner* owner, void* context, const uint8_t* topic_id,
                             int32_t partition) noexcept nogil
cdef int journal_reserve(Journal* journal, JournalOwner* owner, uint32_t size,
                         Reservation* out) noexcept nogil
cdef void journal_commit(Journal* journal, Reservation* place, const uint8_t* batch,
                         uint32_t size, int64_t end_offset) noexcept nogil
cdef void journal_cancel(Journal* journal, Reservation* place) noexcept nogil
cdef void journal_demand(Journal* journal) noexcept nogil

cdef Journal* journal_create(const char* directory, int64_t group_bytes, int64_t file_bytes,
                             int64_t bytes_max, int64_t interval_ms,
                             const JournalCallbacks* callbacks, uint64_t salt) noexcept nogil
cdef int journal_start(Journal* journal) noexcept nogil
cdef void journal_stop(Journal* journal) noexcept nogil
cdef void journal_destroy(Journal* journal, bint unlink_files) noexcept nogil
