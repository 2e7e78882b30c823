"""One record of a record batch of magic 2 (KIP-98), as it is when it is not compressed.

    varint   length of what follows
    int8     attributes, none in use
    varlong  timestamp delta to the batch's base timestamp, ms
    varint   offset delta to the batch's base offset
    varint   key length, -1 for null; key
    varint   value length, -1 for null; value
    varint   number of headers; each: varint key length, key, varint value length (-1 null),
             value

Kafka takes any length below 0 for null; here it is -1 or an error, because no client writes
another one and not every client can read it. Pointers are borrowed; free of state.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.wire cimport Slice


cdef enum:
    RECORD_BYTES_MIN = 7            # an empty record
    RECORD_OVERHEAD_MAX = 36        # bytes besides key, value and headers, at most

cdef enum:                          # with the values of batch.pxd's BATCH_* codes
    RECORD_OK = 0
    RECORD_BAD = -17                # a length or varint in a record is wrong
    RECORD_BYTES_LEFT = -18         # bytes left after the last record
    RECORD_BAD_OFFSET_DELTA = -19   # a record's offset delta is not its index


ctypedef struct Record:
    int64_t offset
    int64_t timestamp             # ms
    Slice key                     # n = -1 for null
    Slice value
    const uint8_t* headers        # header_count headers, for next_header
    const uint8_t* end            # one past the record
    int32_t header_count


ctypedef struct Header:
    Slice key
    Slice value


ctypedef struct Walk:             # what a walk has seen
    int64_t delta_min             # of the timestamp deltas
    int64_t delta_max
    int32_t index                 # records walked
    int32_t keyless               # of them without a key
    int code                      # BATCH_OK or the first fault


# The record at p but for offset and timestamp; False where a length is wrong. Its headers are
# counted and not looked at.
cdef bint read_record(
    const uint8_t* p, const uint8_t* end, Record* out, int32_t* offset_delta,
    int64_t* timestamp_delta,
) noexcept nogil

# Header at p of a record; the next one's place, or NULL when it runs over `end`.
cdef const uint8_t* next_header(
    const uint8_t* p, const uint8_t* end, Header* out
) noexcept nogil

# All `count` records of a batch, which must fill [p, end); RECORD_* in w.code and the index of
# the bad record in w.index.
cdef void walk_records(
    const uint8_t* p, const uint8_t* end, int32_t count, Walk* w
) noexcept nogil
