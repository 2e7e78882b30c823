"""Producer state of a partition: epochs, the last five batches of each producer, transactions.

What a batch with a producer id may do is decided from the state (`producers_check`), and what it
did is folded into it (`producers_apply`); the same fold rebuilds it after a crash from the newest
snapshot (see snapshots) and the batches behind it. Rules as Kafka 4.3 has them: a producer that is
not known may begin with any sequence (its records may have been deleted or it may have expired),
so UNKNOWN_PRODUCER_ID never comes from here.

A client's batch that opens a transaction (KIP-890) is taken only from who began to verify it here
before the transaction coordinator was asked: `producers_verify` draws a guard, the append brings it
along. What ends the transaction meanwhile takes the guard away, so that an answer of the
coordinator that came late opens nothing.

Not thread-safe: the lock of the log is held.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.partition_transactions cimport EndedTxn, OngoingTxn, Transactions

cdef enum:
    PRODUCER_BATCHES = 5
    NO_PRODUCER_EPOCH = -1

cdef enum ProducerOrigin:
    ORIGIN_CLIENT = 0                   # sequence and epoch are checked
    ORIGIN_COORDINATOR = 1              # no sequences: the epoch is checked
    ORIGIN_REPLAY = 2                   # was checked before: recovery, journal, replication

cdef enum:
    NOT_GUARDED = -1                    # Terms.guard: opens transactions without having verified

# How a batch comes to be appended.
ctypedef struct Terms:
    int origin
    int64_t guard                       # from producers_verify; 0: none was drawn
    int transaction_version             # of an end marker: from 2 on its epoch is a new one

cdef enum ProducerVerdict:
    PRODUCER_OK = 0
    PRODUCER_DUPLICATE = 1              # one of the last five batches
    PRODUCER_OUT_OF_ORDER = -1
    PRODUCER_FENCED = -2                # an older epoch: INVALID_PRODUCER_EPOCH
    PRODUCER_TXN_STATE = -3             # outside of the transaction, or opens one without a guard
    PRODUCER_COORDINATOR_FENCED = -4    # marker of an older transaction coordinator
    PRODUCER_NO_MEMORY = -5
    PRODUCER_BAD_MARKER = -6            # control batch without a readable end marker

ctypedef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta

ctypedef struct Verification:           # of the batch that will open a transaction
    int64_t guard
    int64_t since_ms
    int32_t lowest_sequence             # that asked: none above it may come first
    int16_t epoch
    uint8_t bumps                       # the epoch is a new one for each transaction (TV2)

ctypedef struct Producer:
    int64_t id
    int64_t last_timestamp              # ms
    OngoingTxn txn
    int32_t coordinator_epoch
    int16_t epoch                       # NO_PRODUCER_EPOCH: nothing was appended yet
    uint8_t first                       # ring of batches
    uint8_t count
    Verification* verification          # NULL: none is going on
    ProducerBatch batches[PRODUCER_BATCHES]

ctypedef struct Producers:
    Producer** slots                    # open addressing, power of two
    int32_t capacity
    int32_t count
    int64_t guards                      # drawn so far
    Transactions txns

cdef Producers* producers_new() noexcept nogil
cdef void producers_free(Producers* ps) noexcept nogil
cdef void producers_clear(Producers* ps) noexcept nogil
# How many other producers a search passes at the most, for tests.
cdef int32_t producers_longest_search(const Producers* ps) noexcept nogil
cdef Producer* producers_find(const Producers* ps, int64_t id) noexcept nogil
# The entry of this id, an empty one where there was none; NULL: no memory.
cdef Producer* producers_take(Producers* ps, int64_t id) noexcept nogil

# May this batch be appended? Makes room for what producers_apply will add, so that it cannot fail.
# PRODUCER_DUPLICATE: `duplicate` is the batch of that time.
cdef int producers_check(Producers* ps, const Terms* terms, const uint8_t* batch,
                         const BatchInfo* info, ProducerBatch* duplicate) noexcept nogil
# Does this control batch end a transaction that is open by an abort?
cdef bint producers_aborts(const Producers* ps, const uint8_t* batch,
                           const BatchInfo* info) noexcept nogil
# A transactional batch of this producer, epoch and base sequence is to come. PRODUCER_OK with
# guard 0: its transaction is open here. With another guard: the coordinator is to be asked before.
# PRODUCER_FENCED, PRODUCER_NO_MEMORY.
cdef int producers_verify(Producers* ps, int64_t id, int16_t epoch, int32_t sequence, bint bumps,
                          int64_t now_ms, int64_t* guard) noexcept nogil
# Fold a batch in; base_offset is the one it got. `batch` (all its bytes) is looked at when it is a
# control batch. ended.first_offset is -1 unless the batch ended a transaction.
cdef int producers_apply(Producers* ps, const uint8_t* batch, const BatchInfo* info,
                         int64_t base_offset, EndedTxn* ended) noexcept nogil
# Take in the ongoing transactions of entries that were read from a snapshot. False: no memory.
cdef bint producers_link_txns(Producers* ps) noexcept nogil
# Forget producers without a transaction that were quiet for expiration_ms: how many.
cdef int producers_expire(Producers* ps, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef int32_t sequence_add(int32_t sequence, int32_t n) noexcept nogil
