"""The records of one partition of one Fetch answer, in order.

A Stream reads where the bytes lie. Of each batch it checks the bounds and, unless told otherwise,
the CRC; it decompresses, to at most `limit` bytes; it passes over control batches and, with
read_committed, over batches of aborted transactions (the answer's list of producer ids and first
offsets, KIP-98). Records below `position` are passed over as well: a broker sends whole batches.

    stream_open ... stream_close
    stream_batch: make `cursor` stand before a record: STREAM_RECORDS, STREAM_END or an error
    stream_record: the next record, as long as stream_batch would say STREAM_RECORDS

No Python, no locks; one thread at a time. A Stream holds its frame, and `memory` (the frame, or
what a batch was decompressed into) while a batch is open: take a reference of it for pointers
that stay.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo, RecordCursor
from kbroker.ext.client_counted cimport Memory
from kbroker.ext.record cimport Record

cdef enum:                          # beside the BATCH_* codes, which are below 0
    STREAM_END = 0
    STREAM_RECORDS = 1
    STREAM_CUT = -100               # bytes, but not one whole batch
    STREAM_BEHIND = -101            # batches that end before the offset that was asked for
    STREAM_BAD_OFFSET = -102        # an offset outside what its batch says

ctypedef struct Aborted:            # an aborted transaction
    int64_t producer_id
    int64_t first_offset

ctypedef struct Producer:           # a place in a table of producers that abort
    int64_t id
    bint used
    bint aborting                   # its open transaction is an aborted one

ctypedef struct StreamRules:
    int64_t limit                   # bytes of one batch's records, decompressed
    bint check_crcs
    bint read_committed

ctypedef struct Stream:
    Memory* frame
    const uint8_t* p                # batches not opened yet
    const uint8_t* end
    int64_t position                # offset of the next record
    int64_t start                   # `position` at the beginning
    int32_t epoch                   # leader epoch of the last batch opened, -1: none
    StreamRules rules
    const uint8_t* sound            # of the frame: batches that end here or before have good CRCs
    Aborted* aborted                # owned; by first offset; those before aborted_at have begun
    int32_t aborted_count
    int32_t aborted_at
    int32_t producers_room          # a power of two, over twice as many as there are
    Producer* producers             # owned
    bint open                       # cursor, info and memory are of an open batch
    BatchInfo info                  # of the batch opened last, also where it is in error
    Memory* memory
    RecordCursor cursor
    int64_t batches_passed          # whole batches seen

# `aborted` are `aborted_count` pairs of big-endian int64 (producer id, first offset), borrowed;
# frame is referenced. False: no memory, and nothing is held.
cdef bint stream_open(
    Stream* s, Memory* frame, const uint8_t* p, const uint8_t* end, int64_t position,
    const uint8_t* aborted, int32_t aborted_count, size_t aborted_bytes, const StreamRules* rules,
) noexcept nogil
cdef void stream_close(Stream* s) noexcept nogil
cdef int stream_batch(Stream* s) noexcept nogil
# The records of the batch in error with BATCH_NO_CODEC, decompressed by somebody else: opens it.
cdef int stream_plain(Stream* s, const uint8_t* p, size_t n) noexcept nogil
# 1 and a record at or behind `position`, which moves behind it; 0 at the end of the batch; error.
cdef int stream_record(Stream* s, Record* out) noexcept nogil
cdef const char* stream_message(int code) noexcept nogil
