"""`__consumer_offsets` folded: the last commit of each key, transactions, and all other records.

Batches go in by `fold_open`, their records by `fold_records`. Commits are folded as Kafka's
coordinator replays them: the last one of a key holds, a tombstone removes it. Commits in batches
with a producer id are pending until that producer's marker: then they take effect (unless a commit
that stands behind them in the log is there already) or go; a tombstone removes those of its key.
Everything else is kept in order, up to OTHERS_MAX records or OTHERS_BYTES_MAX at a time, and
`fold_records` stops there until the caller has taken them. With `keeps_all` set every record is
one of those: `__transaction_state` is read so.

What cannot be read is counted, and noted up to PROBLEMS_MAX times. Memory: for each distinct key
its bytes and an Entry, for each live commit its metadata. Not thread-safe; nothing of Python.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.batch cimport BatchInfo, RecordCursor
from kbroker.ext.byte_table cimport ByteTable
from kbroker.ext.compression cimport Buffer

cdef enum:
    OTHERS_MAX = 1000
    OTHERS_BYTES_MAX = 1 << 20
    PROBLEMS_MAX = 100
    NO_TOPIC_ID = -1
    NO_PENDING = -1

cdef enum FoldCode:
    FOLD_MORE = 1                   # others are to be taken before it goes on
    FOLD_OK = 0                     # the batch is done
    FOLD_NO_MEMORY = -1
    FOLD_NO_CODEC = -2              # fold_open: decompress it elsewhere, then fold_open_plain

ctypedef struct Commit:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp
    int64_t record_offset           # of the record in the log
    uint8_t* metadata               # owned; NULL when empty
    uint32_t metadata_bytes
    int32_t leader_epoch
    int32_t topic_id                # in Fold.ids; NO_TOPIC_ID

ctypedef struct Entry:              # of the key with the same number in Fold.keys
    Commit commit
    uint32_t group                  # in Fold.names
    uint32_t topic
    int32_t partition
    int32_t pending                 # first of its pending commits
    bint live

ctypedef struct Pending:            # of the (producer id, key) with the same number in Fold.pairs
    Commit commit
    int64_t producer_id
    uint32_t entry
    int32_t next_of_entry
    int32_t next_of_producer
    bint live
    bint in_entry                   # it stands in its entry's chain
    bint in_producer                # ... and in its producer's

ctypedef struct Other:              # a record in Fold.others_bytes
    int64_t offset
    size_t at
    int32_t key_bytes
    int32_t value_bytes             # -1: null

ctypedef struct Problem:
    int64_t offset
    const char* reason              # static

ctypedef struct Fold:
    ByteTable keys                  # of commits, without the number before them
    ByteTable names                 # of groups and topics
    ByteTable ids                   # of topics
    ByteTable pairs                 # producer id, entry: 8 and 4 bytes
    ByteTable producers             # producer ids
    Entry* entries
    uint32_t entries_room
    Pending* pendings
    uint32_t pendings_room
    int32_t* producer_heads         # first pending commit of the producer of that number
    uint32_t producers_room
    Other others[OTHERS_MAX]
    int32_t others_count
    Buffer others_bytes
    Problem problems[PROBLEMS_MAX]
    int64_t problems_count          # all of them
    int64_t records
    BatchInfo batch                 # the one that is open
    RecordCursor cursor
    Buffer plain                    # its records, decompressed
    bint keeps_all                  # no record is taken for a commit

cdef void fold_init(Fold* fold, uint64_t seed) noexcept nogil
cdef void fold_free(Fold* fold) noexcept nogil
# A batch whose header and checksum are right; its bytes stay until fold_records has said FOLD_OK.
# One that does not decompress is noted and has no records then.
cdef int fold_open(Fold* fold, const uint8_t* p, const BatchInfo* info,
                   size_t plain_bytes_max) noexcept nogil
cdef void fold_open_plain(Fold* fold, const BatchInfo* info, const uint8_t* p,
                          size_t n) noexcept nogil
cdef int fold_records(Fold* fold) noexcept nogil
cdef void fold_problem(Fold* fold, int64_t offset, const char* reason) noexcept nogil
