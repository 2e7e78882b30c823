"""Transactions as a cleaning meets them: whose records go, and when their markers may go.

Rules of Apache Kafka 4.3: the data batches of an aborted transaction go at once. A marker stays as
long as batches of its transaction were met on the way; then it has a delete horizon as a tombstone
has. For each abort marker that stays because of batches met, the entry of the transaction index
stays too.

Belongs to one thread; all lists are owned. Batches are told in the order of their offsets.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.log_state cimport Log

ctypedef struct TxnEntry:               # of a transaction index
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset
    int64_t last_stable_offset

ctypedef struct Ongoing:                # aborted, its marker not met yet
    int32_t entry
    int32_t observed                    # a batch of it was met

ctypedef struct LastRecord:             # what a producer's state stands on
    int64_t producer_id
    int64_t last_data_offset            # -1: its last is a marker
    int16_t epoch

ctypedef struct Txns:
    TxnEntry* entries                   # aborted transactions, ascending by first offset
    int32_t count
    int32_t capacity
    int32_t next                        # the first one that was not reached
    Ongoing* aborted
    int32_t aborted_count
    int32_t aborted_capacity
    int64_t* committed                  # producer ids with batches met and no marker yet
    int32_t committed_count
    int32_t committed_capacity

ctypedef struct LastRecords:
    LastRecord* items                   # ascending by producer id
    int32_t count

# Aborted transactions that touch [start, end): LOG_OK or an error of the log.
cdef int txns_load(Txns* t, Log* log, int64_t start, int64_t end) noexcept nogil
cdef void txns_free(Txns* t) noexcept nogil
# From the first offset again.
cdef void txns_rewind(Txns* t) noexcept nogil
# A data batch: 1 when it belongs to an aborted transaction, 0, or LOG_NO_MEMORY.
cdef int txns_on_data(Txns* t, const BatchInfo* info) noexcept nogil
# A control batch with its records (not compressed): 1 when it need not stay, 0, LOG_NO_MEMORY.
# *kept: the index entry that stays with it, or NULL.
cdef int txns_on_control(Txns* t, const BatchInfo* info, const uint8_t* records,
                         const uint8_t* end, const TxnEntry** kept) noexcept nogil

# What the state of the log's producers stands on now. LOG_OK or LOG_NO_MEMORY.
cdef int last_records_load(LastRecords* l, Log* log) noexcept nogil
cdef void last_records_free(LastRecords* l) noexcept nogil
# The batch has to stay, be it empty: it holds the last sequence, or the epoch, of its producer.
cdef bint last_records_hold(const LastRecords* l, const BatchInfo* info) noexcept nogil
