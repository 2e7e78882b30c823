"""Producer state of a partition: epochs, the last five batches of each producer, transactions.

What a batch with a producer id may do is decided from the state (`producers_check`), and what it
did is folded into it (`producers_apply`); the same fold rebuilds it after a crash from the newest
snapshot (see snapshots) and the batches behind it. Rules as Kafka 4.3 has them: a producer that is
not known may begin with any sequence (its records may have been deleted or it may have expired),
so UNKNOWN_PRODUCER_ID never comes from here.

Not thread-safe: the lock of the log is held.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo

cdef enum:
    PRODUCER_BATCHES = 5
    NO_PRODUCER_EPOCH = -1

cdef enum ProducerOrigin:
    ORIGIN_CLIENT = 0                   # sequence and epoch are checked
    ORIGIN_COORDINATOR = 1              # no sequences: the epoch is checked
    ORIGIN_REPLAY = 2                   # was checked before: recovery, journal, replication

cdef enum ProducerVerdict:
    PRODUCER_OK = 0
    PRODUCER_DUPLICATE = 1              # one of the last five batches
    PRODUCER_OUT_OF_ORDER = -1
    PRODUCER_FENCED = -2                # an older epoch: INVALID_PRODUCER_EPOCH
    PRODUCER_TXN_STATE = -3             # no transaction's batch within a transaction
    PRODUCER_COORDINATOR_FENCED = -4    # marker of an older transaction coordinator
    PRODUCER_NO_MEMORY = -5
    PRODUCER_BAD_MARKER = -6            # control batch without a readable end marker

ctypedef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta

ctypedef struct Producer:
    int64_t id
    int64_t last_timestamp              # ms
    int64_t txn_first_offset            # of the ongoing transaction; -1: none
    int32_t coordinator_epoch
    int16_t epoch                       # NO_PRODUCER_EPOCH: nothing was appended yet
    uint8_t first                       # ring of batches
    uint8_t count
    ProducerBatch batches[PRODUCER_BATCHES]

ctypedef struct Txn:                    # ongoing, or complete with its marker not yet below hw
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset                 # of the marker; -1: ongoing

ctypedef struct Producers:
    Producer** slots                    # open addressing, power of two
    int32_t capacity
    int32_t count
    Txn* txns                           # ascending by first offset
    int32_t txn_count
    int32_t txn_capacity

ctypedef struct EndedTxn:               # what an end marker ended
    int64_t producer_id
    int64_t first_offset                # -1: nothing: the transaction had no batch here
    int64_t last_offset                 # of the marker
    int64_t last_stable_offset          # once it is ended
    int32_t aborted

cdef Producers* producers_new() noexcept nogil
cdef void producers_free(Producers* ps) noexcept nogil
cdef void producers_clear(Producers* ps) noexcept nogil
cdef Producer* producers_find(const Producers* ps, int64_t id) noexcept nogil
# The entry of this id, an empty one where there was none; NULL: no memory.
cdef Producer* producers_take(Producers* ps, int64_t id) noexcept nogil

# May this batch be appended? Makes room for what producers_apply will add, so that it cannot fail.
# PRODUCER_DUPLICATE: `duplicate` is the batch of that time.
cdef int producers_check(Producers* ps, int origin, const uint8_t* batch, const BatchInfo* info,
                         ProducerBatch* duplicate) noexcept nogil
# Fold a batch in; base_offset is the one it got. `batch` (all its bytes) is looked at when it is a
# control batch. ended.first_offset is -1 unless the batch ended a transaction.
cdef int producers_apply(Producers* ps, const uint8_t* batch, const BatchInfo* info,
                         int64_t base_offset, EndedTxn* ended) noexcept nogil
# An ongoing transaction, from a snapshot.
cdef int producers_begin_txn(Producers* ps, int64_t id, int64_t first_offset) noexcept nogil
# Least offset of a transaction that is ongoing or whose marker is not below hw; -1: none.
cdef int64_t producers_first_unstable(const Producers* ps) noexcept nogil
# Markers below hw are stable: forget their transactions.
cdef void producers_stable_below(Producers* ps, int64_t hw) noexcept nogil
# Forget producers without a transaction that were quiet for expiration_ms: how many.
cdef int producers_expire(Producers* ps, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef int32_t sequence_add(int32_t sequence, int32_t n) noexcept nogil
