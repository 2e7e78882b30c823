"""Records laid out as columns: filled from Streams without a Python object, and without a copy of
what the records hold.

Numbers are what the Arrow columnar format has for them: int64 offsets and timestamps (ms), int32
partitions and topics (an index). Keys and values are Arrow's binary views, 16 bytes a row: where a
value lies in the memory that its batch came in, or was decompressed into, which the store holds
(a `Piece`). Arrow's older `binary` (n + 1 int32 ends, one run of data) is made of them when it is
asked for. Headers are list<struct<key utf8, value binary>>, copied.

A store is filled by one thread and then only read; it is counted, and the last to let go frees it,
on any thread.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_counted cimport Memory
from kbroker.ext.client_stream cimport Stream

cdef enum:
    STORE_FULL = 2                      # no further row fits, start another store
    STORE_BYTES_MAX = 1 << 30           # of keys, of values, of headers: their ends are int32
    VIEW_BYTES = 16
    VIEW_INLINE_MAX = 12

cdef struct View:                       # Arrow's; null: all zero
    int32_t n
    uint8_t prefix[4]                   # n <= VIEW_INLINE_MAX: the value, from here on, and zeros
    int32_t piece
    int32_t at                          # in the piece

cdef struct Views:                      # keys or values
    View* views                         # one a row
    uint8_t* validity                   # one bit a row, 1 where not null; beyond the rows 1
    bint begun                          # False: every row is null, and nothing was written
    int64_t nulls
    int64_t n                           # bytes of all
    bint packed                         # what follows is there
    int32_t* ends                       # rows + 1, the first is 0
    uint8_t* data
    int64_t ends_room
    int64_t data_room

cdef struct Binary:                     # headers and names
    int32_t* ends                       # count + 1, the first is 0
    uint8_t* data
    uint8_t* validity                   # one bit an element, 1 where not null; NULL: no null
    int64_t count
    int64_t room                        # elements
    int64_t n                           # bytes
    int64_t bytes_room
    int64_t nulls

cdef struct Store:
    int32_t refs                        # atomic
    int64_t rows
    int64_t room
    int64_t* offsets
    int64_t* timestamps
    int32_t* partitions
    int32_t* topics
    int32_t* timestamp_types            # 0: when it was created, 1: when it was appended
    Views key
    Views value
    Memory** pieces                     # referenced
    int64_t* piece_bytes
    int32_t pieces_count
    int32_t pieces_room
    int32_t* header_ends                # rows + 1 once there is a header, else NULL
    Binary header_key
    Binary header_value
    Binary names                        # of topics, by index

cdef Store* store_new() noexcept nogil
cdef Store* store_ref(Store* store) noexcept nogil
cdef void store_unref(Store* store) noexcept nogil
# The same rows in memory of their own, no larger than they need; NULL: no memory.
cdef Store* store_copy(const Store* store) noexcept nogil
# A few that were let go are kept to be filled again; this frees them.
cdef void store_forget_cached() noexcept nogil
# The rest of the open batch of `s`, until there are `most` rows: 0 at its end, 1 where rows ran
# out, STORE_FULL, or an error; what was read before it is in the store.
cdef int store_take(
    Store* store, Stream* s, int32_t topic, int32_t partition, int64_t most
) noexcept nogil
# Whether row i is null; else *p and its length.
cdef int32_t store_value(
    const Store* store, const Views* v, int64_t i, const uint8_t** p
) noexcept nogil

# ---- with the GIL: what is made once somebody asks
# Views and validity are written for every row.
cdef void views_settle(Store* store, Views* v) noexcept
# `ends` and `data` are there. Gives the GIL back meanwhile. False: no memory.
cdef bint views_pack(Store* store, Views* v)
# Room for a header column where no row has a header. False: no memory.
cdef bint store_settle_headers(Store* store) noexcept

# One element more; p NULL and n = -1: null. False: no memory.
cdef bint binary_put(Binary* b, const uint8_t* p, int32_t n) noexcept nogil
cdef inline bint binary_null(const Binary* b, int64_t i) noexcept nogil:
    return b.validity != NULL and not b.validity[i >> 3] >> (i & 7) & 1
