"""Records laid out as Arrow's columns: filled from Streams without a Python object.

Each column is what the Arrow columnar format has for its type, so that numpy and Arrow take it as
it is: int64 offsets and timestamps (ms), int32 partitions and topics (an index), binary keys and
values (n + 1 int32 ends, data, a validity bitmap where there is a null), headers as
list<struct<key utf8, value binary>>. A store is filled by one thread and then only read; it is
counted, and the last to let go frees it, on any thread.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_stream cimport Stream

cdef enum:
    STORE_FULL = 2                      # no further row fits, start another store
    STORE_BYTES_MAX = 1 << 30           # of one binary column: its ends are int32

cdef struct Binary:
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
    Binary key
    Binary value
    int32_t* header_ends                # rows + 1 once there is a header, else NULL
    Binary header_key
    Binary header_value
    Binary names                        # of topics, by index

cdef Store* store_new() noexcept nogil
cdef Store* store_ref(Store* store) noexcept nogil
cdef void store_unref(Store* store) noexcept nogil
# A few that were let go are kept to be filled again; this frees them.
cdef void store_forget_cached() noexcept nogil
# The rest of the open batch of `s`, until there are `most` rows: 0 at its end, 1 where rows ran
# out, STORE_FULL, or an error; what was read before it is in the store.
cdef int store_take(
    Store* store, Stream* s, int32_t topic, int32_t partition, int64_t most
) noexcept nogil
# One element more; p NULL and n = -1: null. False: no memory.
cdef bint binary_put(Binary* b, const uint8_t* p, int32_t n) noexcept nogil
cdef inline bint binary_null(const Binary* b, int64_t i) noexcept nogil:
    return b.validity != NULL and not b.validity[i >> 3] >> (i & 7) & 1
