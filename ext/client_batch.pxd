"""A batch of the producer: records of one partition, from the first append to its outcome.

Its records lie in one contiguous piece, room for the header in front, of the producer's memory.
While it is open, appends go on under its partition's lock; once the sender has closed it, the
sender alone touches it. Who holds a reference may read `state` and, when that is not PENDING any
more, the outcome behind it; the piece is given back then, the struct lives on for deliveries.

A batch that the broker finds too large becomes the parent of smaller ones (SPLIT); its state
moves when all of them have theirs.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.batch_build cimport BatchBuilder
from kbroker.ext.client_memory cimport MemoryPool
from kbroker.ext.record cimport Header
from kbroker.ext.wire cimport Slice

cdef enum:                          # ClientBatch.state
    OUTCOME_PENDING = 0
    OUTCOME_DONE = 1                # base_offset says where, -1 where that is not known
    OUTCOME_FAILED = 2              # error_code, message, faults
    OUTCOME_SPLIT = 3               # ask the children

cdef enum:                          # what is no error code of Kafka's
    ERROR_EXPIRED = -1000           # delivery.timeout.ms is over
    ERROR_PURGED = -1001
    ERROR_CLOSED = -1002            # the producer was closed before
    ERROR_COMPRESSION = -1003       # no memory, or the codec's library is not there

cdef enum:
    SUM_BYTES = 16384               # appended to a batch, and then summed

cdef enum:                          # ClientBatch.watch
    WATCH_NONE = 0
    WATCH_WANTED = 1                # Python wants to be told
    WATCH_OVER = 2                  # the state has moved

cdef struct RecordFault:
    int32_t index
    char* message                   # malloc's, NULL for none

ctypedef struct Rec:                # a record to be appended; borrowed
    int64_t timestamp
    Slice key
    Slice value
    const Header* headers
    int32_t header_count

cdef struct ClientBatch:
    BatchBuilder builder            # of the piece, or of malloc's where it was split off
    MemoryPool* pool                # NULL: malloc's; the producer outlives what it is asked for
    int64_t piece_bytes             # of the pool that this batch holds
    int32_t refs                    # atomic
    int32_t state                   # atomic, see above
    int32_t watch                   # atomic
    int32_t partition
    int32_t generation              # of the process, by forks
    void* callbacks                 # a Python list or NULL, touched with the GIL only
    bint asked                      # of a root that failed: by a delivery, with the GIL
    int32_t unasked                 # of a root: references that Unasked holds, with the GIL
    # The outcome.
    int64_t base_offset
    int64_t append_time             # ms, -1 where the record's own timestamp counts
    int16_t error_code
    int16_t faults_count
    int32_t local_error             # ERROR_* or 0
    char* message
    RecordFault* faults
    ClientBatch* parent
    ClientBatch** children
    int32_t children_count
    int32_t children_left
    # The accumulator's.
    ClientBatch* next               # in the partition's deque
    ClientBatch* all_next           # of all that have no outcome yet, in the order of creation
    ClientBatch* all_before
    int64_t serial
    int64_t created_ns
    bint closed                     # takes no more records
    int64_t ahead                   # of the pool's account of such batches
    uint32_t crc                    # of the records up to `summed`, where they stay as they are
    size_t summed                   # bytes of the piece
    # The sender's.
    void* part
    ClientBatch* flight_next        # with a sequence and without an outcome, by sequence
    int64_t producer_id
    int64_t retry_ns                # not before
    int32_t base_sequence           # -1: not drained yet
    int32_t attempts
    int32_t attempt_epoch           # of the leader at the last attempt
    int16_t producer_epoch
    bint stamped                    # header and CRC are of this producer state
    bint packed                     # compressed
    bint in_call                    # a request borrows the piece
    bint unseen                     # it failed, and no callback is told
    bint sequence_reset
    bint split_off

# How often this process is the child of a fork; what is of another one has no thread here.
cdef int32_t fork_generation() noexcept nogil

cdef ClientBatch* batch_new(
    MemoryPool* pool, uint8_t* piece, int64_t piece_bytes, int32_t partition, int64_t now_ns
) noexcept nogil
cdef void batch_ref(ClientBatch* b) noexcept nogil
cdef void batch_unref(ClientBatch* b) noexcept nogil
# The one that deliveries refer to: it was split, or one that came of it.
cdef ClientBatch* batch_root(ClientBatch* b) noexcept nogil
# Takes no more records.
cdef void batch_close(ClientBatch* b) noexcept nogil
# Gives the piece back; nothing where that is done already.
cdef void batch_release(ClientBatch* b) noexcept nogil

# Takes the checksum of what was appended since, while it is in the cache. The partition's lock is
# held, or the batch is closed.
cdef void batch_sum(ClientBatch* b) noexcept nogil
# Compresses the records in place of the plain ones (CODEC_NONE: nothing); BATCH_*.
cdef int batch_pack(ClientBatch* b, int codec, int level) noexcept nogil
# The batches of at most `bytes_max` (but one record at least) that these records make; NULL: no
# memory, or the records cannot be read. The parent's piece stays.
cdef ClientBatch** batch_split(
    ClientBatch* b, size_t bytes_max, int32_t* count
) noexcept nogil

# Sets the outcome, wakes who waits. True: Python is to be told (its reference goes with that).
cdef bint batch_settle(ClientBatch* b, int state) noexcept nogil
# False where it takes longer than until deadline_ns.
cdef bint batch_wait(ClientBatch* b, int64_t deadline_ns) noexcept nogil
# Python wants to be told of the outcome; False: there is one.
cdef bint batch_watch(ClientBatch* b) noexcept nogil
# The batch that holds the record with this index, through all splits, and its index in there.
cdef ClientBatch* batch_of_record(ClientBatch* b, int32_t* index) noexcept nogil
cdef char* text_copy(const uint8_t* p, int32_t n) noexcept nogil
