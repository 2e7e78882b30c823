"""A table of distinct byte strings: each gets the next number, from 0.

Open addressing over 32 bits of SipHash-1-3 (Aumasson and Bernstein, "SipHash: a fast short-input
PRF"), keyed with a seed of the table and a key of the process, so that clients, which pick the
strings, cannot pick collisions. A seed alone is not enough: under a hash that multiplies and folds,
a flipped top bit of one word is undone by two bits of the next, whatever the seed. The bytes are
copied and never move until table_free. Not thread-safe; memory is malloc's.
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
cdef uint64_t siphash(uint64_t key0, uint64_t key1, const uint8_t* p, size_t n) noexcept nogil
# 32 bits of it, for any hash table whose keys come from clients.
cdef uint32_t bytes_hash(uint64_t seed, const uint8_t* p, size_t n) noexcept nogil
# The number of these bytes, put in where they are new (it is then the count of before);
# TABLE_NO_MEMORY, also beyond 2^31 items.
cdef int64_t table_put(ByteTable* table, const uint8_t* p, size_t n) noexcept nogil
