"""The transaction index of a segment: which transactions whose markers lie in it were aborted.

`<20 digits>.txnindex`, entries of 34 bytes, big-endian: int16 version (0), int64 producer id, int64
first offset, int64 last offset (of the marker), int64 last stable offset once it was aborted. By
last offset. There is no file as long as nothing was aborted.

A crash may leave a part of an entry, or entries that did not reach the disk: recovery writes the
file anew from the markers in the segment.

Appends under the lock of the log; reads need none (an entry is there whole or not at all). Errors
are errno.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.partition_transactions cimport EndedTxn
from kbroker.ext.segment cimport Segment

cdef enum:
    TXN_ENTRY_BYTES = 34
    TXN_BUFFER_ENTRIES = 128

ctypedef struct AbortedTxn:
    int64_t producer_id
    int64_t first_offset

ctypedef struct AbortedList:
    AbortedTxn* items                   # malloc'ed
    int32_t count
    int32_t capacity

ctypedef struct TxnBuffer:              # of entries that are appended together
    uint8_t entries[TXN_BUFFER_ENTRIES * TXN_ENTRY_BYTES]
    int32_t count

# Have room on disk for an entry, so that the next append does not fail for want of it. The file may
# stay behind empty.
cdef int txn_index_reserve(Segment* s) noexcept nogil
cdef int txn_index_append(Segment* s, const EndedTxn* ended) noexcept nogil
# The same by way of a buffer, whose last entries txn_index_flush writes.
cdef int txn_index_add(Segment* s, TxnBuffer* buffer, const EndedTxn* ended) noexcept nogil
cdef int txn_index_flush(Segment* s, TxnBuffer* buffer) noexcept nogil
# Add those that touch [offset, upper_bound). *complete: no later segment can hold another.
cdef int txn_index_collect(const Segment* s, int64_t offset, int64_t upper_bound,
                           AbortedList* out, bint* complete) noexcept nogil
# Keep entries whose marker lies below `offset` (base_offset: none; then the file goes). EILSEQ:
# they do not ascend, and nothing was changed.
cdef int txn_index_truncate(Segment* s, int64_t offset) noexcept nogil
cdef int txn_index_sync(const Segment* s) noexcept nogil
