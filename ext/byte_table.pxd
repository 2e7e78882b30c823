"""A table of distinct byte strings: each gets the next number, from 0.

Open addressing over 32-bit hashes that begin with a seed of the table's own, so that whoever picks
the strings cannot pick collisions. The bytes are copied and never move until table_free. Not
thread-safe; memory is malloc's.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cdef enum:
    TABLE_NO_MEMORY = -1
    ARENA_CHUNK_BYTES = 65536

ctypedef struct ArenaChunk:
    ArenaChunk* next
    size_t used
    size_t room

ctypedef struct TableItem:
    const uint8_t* p
    uint32_t n
    uint32_t hash

ctypedef struct ByteTable:
    TableItem* items
    uint32_t* slots                 # number + 1 of an item, 0: free
    uint32_t slots_mask
    uint32_t count
    uint32_t capacity
    uint64_t seed
    ArenaChunk* arena

# The process's own, for tables whose strings come from clients.
cdef uint64_t process_seed() noexcept nogil
cdef void table_init(ByteTable* table, uint64_t seed) noexcept nogil
cdef void table_free(ByteTable* table) noexcept nogil
cdef uint32_t bytes_hash(uint64_t seed, const uint8_t* p, size_t n) noexcept nogil
# The number of these bytes, put in where they are new (it is then the count of before);
# TABLE_NO_MEMORY, also beyond 2^31 items.
cdef int64_t table_put(ByteTable* table, const uint8_t* p, size_t n) noexcept nogil
