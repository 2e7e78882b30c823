"""Transactions of a partition (see partition_transactions.pxd)."""
from libc.stdint cimport int64_t, uint32_t
from libc.stdlib cimport free, malloc, qsort

cdef enum:
    ENDED_MIN = 4                       # power of two


cdef void txns_clear(Transactions* txns) noexcept nogil:
    txns.oldest = NULL
    txns.newest = NULL
    txns.ended_first = 0
    txns.ended_count = 0


cdef void txns_free(Transactions* txns) noexcept nogil:
    free(txns.ended)
    txns.ended = NULL
    txns.ended_capacity = 0
    txns_clear(txns)


# ---- ongoing

cdef void append(Transactions* txns, OngoingTxn* txn) noexcept nogil:
    txn.before = txns.newest
    txn.after = NULL
    if txns.newest != NULL:
        txns.newest.after = txn
    else:
        txns.oldest = txn
    txns.newest = txn


cdef void unlink(Transactions* txns, OngoingTxn* txn) noexcept nogil:
    if txn.before != NULL:
        txn.before.after = txn.after
    else:
        txns.oldest = txn.after
    if txn.after != NULL:
        txn.after.before = txn.before
    else:
        txns.newest = txn.before
    txn.before = NULL
    txn.after = NULL


cdef void txns_begin(Transactions* txns, OngoingTxn* txn, int64_t first_offset) noexcept nogil:
    txn.first_offset = first_offset
    append(txns, txn)


cdef int by_first_offset(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<OngoingTxn* const*> a)[0].first_offset
    cdef int64_t y = (<OngoingTxn* const*> b)[0].first_offset
    return (x > y) - (x < y)


cdef void txns_take(Transactions* txns, OngoingTxn** members, uint32_t count) noexcept nogil:
    cdef uint32_t i
    qsort(members, count, sizeof(OngoingTxn*), by_first_offset)
    txns.oldest = NULL
    txns.newest = NULL
    for i in range(count):
        append(txns, members[i])


# ---- ended

cdef inline TxnSpan* span_at(Transactions* txns, uint32_t i) noexcept nogil:
    return &txns.ended[(txns.ended_first + i) & (txns.ended_capacity - 1)]


cdef bint txns_reserve(Transactions* txns) noexcept nogil:
    cdef uint32_t capacity
    cdef uint32_t i
    cdef TxnSpan* larger
    if txns.ended_count < txns.ended_capacity:
        return True
    capacity = max(<uint32_t>ENDED_MIN, 2 * txns.ended_capacity)
    larger = <TxnSpan*> malloc(capacity * sizeof(TxnSpan))
    if larger == NULL:
        return False
    for i in range(txns.ended_count):
        larger[i] = span_at(txns, i)[0]
    free(txns.ended)
    txns.ended = larger
    txns.ended_first = 0
    txns.ended_capacity = capacity
    return True


cdef void txns_finish(Transactions* txns, OngoingTxn* txn, EndedTxn* ended) noexcept nogil:
    """Stable is now what lies before the oldest ongoing transaction, or all up to the marker."""
    cdef TxnSpan* last
    unlink(txns, txn)
    ended.first_offset = txn.first_offset
    txn.first_offset = -1
    ended.last_stable_offset = ended.last_offset + 1
    if txns.oldest != NULL:
        ended.last_stable_offset = txns.oldest.first_offset
    while txns.ended_count > 0 \
            and span_at(txns, txns.ended_count - 1).first_offset >= ended.first_offset:
        txns.ended_count -= 1
    last = span_at(txns, txns.ended_count)
    last.first_offset = ended.first_offset
    last.last_offset = ended.last_offset
    txns.ended_count += 1


cdef int64_t txns_first_unstable(const Transactions* txns) noexcept nogil:
    cdef int64_t first = -1
    if txns.oldest != NULL:
        first = txns.oldest.first_offset
    if txns.ended_count > 0 \
            and (first < 0 or txns.ended[txns.ended_first].first_offset < first):
        first = txns.ended[txns.ended_first].first_offset
    return first


cdef void txns_stable_below(Transactions* txns, int64_t hw) noexcept nogil:
    while txns.ended_count > 0 and txns.ended[txns.ended_first].last_offset < hw:
        txns.ended_first = (txns.ended_first + 1) & (txns.ended_capacity - 1)
        txns.ended_count -= 1
