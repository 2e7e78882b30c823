"""Transactions of a partition that hold back its last stable offset.

Those are the ongoing ones, and ended ones whose marker is not below the high watermark yet. Every
operation takes the same time however many there are: clients make them, and a recovery folds in all
of a segment.

Not thread-safe: the lock of the log is held.
"""
from libc.stdint cimport int64_t, uint32_t

ctypedef struct OngoingTxn:             # part of a producer's entry
    int64_t first_offset                # -1: the producer has none
    OngoingTxn* before
    OngoingTxn* after

ctypedef struct EndedTxn:               # what an end marker ended
    int64_t producer_id
    int64_t first_offset                # -1: nothing: the transaction had no batch here
    int64_t last_offset                 # of the marker
    int64_t last_stable_offset          # once it is ended
    int aborted

ctypedef struct TxnSpan:
    int64_t first_offset
    int64_t last_offset                 # of the marker

ctypedef struct Transactions:
    OngoingTxn* oldest                  # ascending by first offset
    OngoingTxn* newest
    # A ring of ended transactions, whose both offsets ascend. One is left out when another began
    # before it and ended behind it: it cannot hold the last stable offset back.
    TxnSpan* ended
    uint32_t ended_first
    uint32_t ended_count
    uint32_t ended_capacity             # power of two

cdef void txns_clear(Transactions* txns) noexcept nogil
cdef void txns_free(Transactions* txns) noexcept nogil
# Make room for one more ended transaction. False: no memory.
cdef bint txns_reserve(Transactions* txns) noexcept nogil
# Begin a transaction at an offset behind those of all others.
cdef void txns_begin(Transactions* txns, OngoingTxn* txn, int64_t first_offset) noexcept nogil
# Take in ongoing transactions in any order, in place of those that are there. `members` is sorted.
cdef void txns_take(Transactions* txns, OngoingTxn** members, uint32_t count) noexcept nogil
# End an ongoing transaction, after txns_reserve. ended.last_offset is given; its other offsets are
# set.
cdef void txns_finish(Transactions* txns, OngoingTxn* txn, EndedTxn* ended) noexcept nogil
# Least offset of a transaction that holds back the last stable offset; -1: none.
cdef int64_t txns_first_unstable(const Transactions* txns) noexcept nogil
# Markers below hw are stable: forget their transactions.
cdef void txns_stable_below(Transactions* txns, int64_t hw) noexcept nogil
