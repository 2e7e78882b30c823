"""A table of distinct byte strings (see byte_table.pxd)."""
import os

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

from kbroker.ext.endian cimport load_le64

cdef enum:
    SLOTS_MIN = 64
    ITEMS_MAX = 0x7FFFFFFF

cdef uint64_t _process_seed = int.from_bytes(os.urandom(8), "big")
cdef uint64_t _process_key = int.from_bytes(os.urandom(8), "big")


cdef uint64_t process_seed() noexcept nogil:
    return _process_seed


cdef void table_init(ByteTable* table, uint64_t seed) noexcept nogil:
    memset(table, 0, sizeof(ByteTable))
    table.seed = seed


cdef void table_free(ByteTable* table) noexcept nogil:
    cdef ArenaChunk* chunk = table.arena
    cdef ArenaChunk* next
    while chunk != NULL:
        next = chunk.next
        free(chunk)
        chunk = next
    free(table.items)
    free(table.slots)
    table_init(table, table.seed)


cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return x << bits | x >> (64 - bits)


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] = rotate(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] = rotate(v[2], 32)


cdef uint64_t siphash(uint64_t key0, uint64_t key1, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef uint64_t last = <uint64_t> n << 56
    v[0] = key0 ^ <uint64_t> 0x736F6D6570736575
    v[1] = key1 ^ <uint64_t> 0x646F72616E646F6D
    v[2] = key0 ^ <uint64_t> 0x6C7967656E657261
    v[3] = key1 ^ <uint64_t> 0x7465646279746573
    while n >= 8:
        word = load_le64(p)
        v[3] ^= word
        sip_round(v)
        v[0] ^= word
        p += 8
        n -= 8
    while n > 0:
        n -= 1
        last |= <uint64_t> p[n] << (8 * n)
    v[3] ^= last
    sip_round(v)
    v[0] ^= last
    v[2] ^= 0xFF
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef uint32_t bytes_hash(uint64_t seed, const uint8_t* p, size_t n) noexcept nogil:
    return <uint32_t> siphash(seed, _process_key, p, n)


cdef const uint8_t* keep(ByteTable* table, const uint8_t* p, size_t n) noexcept nogil:
    """A copy of the bytes in the arena."""
    cdef ArenaChunk* chunk = table.arena
    cdef size_t room = ARENA_CHUNK_BYTES if n <= ARENA_CHUNK_BYTES else n
    cdef uint8_t* at
    if chunk == NULL or chunk.room - chunk.used < n:
        chunk = <ArenaChunk*> malloc(sizeof(ArenaChunk) + room)
        if chunk == NULL:
            return NULL
        chunk.next = table.arena
        chunk.used = 0
        chunk.room = room
        table.arena = chunk
    at = <uint8_t*> chunk + sizeof(ArenaChunk) + chunk.used
    memcpy(at, p, n)
    chunk.used += n
    return at


cdef int grow_slots(ByteTable* table) noexcept nogil:
    cdef size_t room = SLOTS_MIN if table.slots == NULL else 2 * (<size_t> table.slots_mask + 1)
    cdef uint32_t* slots = <uint32_t*> calloc(room, sizeof(uint32_t))
    cdef uint32_t i
    cdef uint32_t at
    if slots == NULL:
        return -1
    free(table.slots)
    table.slots = slots
    table.slots_mask = <uint32_t> (room - 1)
    for i in range(table.count):
        at = table.items[i].hash & table.slots_mask
        while slots[at] != 0:
            at = (at + 1) & table.slots_mask
        slots[at] = i + 1
    return 0


cdef int grow_items(ByteTable* table) noexcept nogil:
    cdef size_t room = SLOTS_MIN if table.capacity == 0 else 2 * <size_t> table.capacity
    cdef void* larger
    if room > ITEMS_MAX:
        return -1
    larger = realloc(table.items, room * sizeof(TableItem))
    if larger == NULL:
        return -1
    table.items = <TableItem*> larger
    table.capacity = <uint32_t> room
    return 0


cdef int64_t table_put(ByteTable* table, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t hash = bytes_hash(table.seed, p, n)
    cdef TableItem* item
    cdef uint32_t at
    if 2 * <size_t> table.count >= table.slots_mask and grow_slots(table) != 0:
        return TABLE_NO_MEMORY
    at = hash & table.slots_mask
    while table.slots[at] != 0:
        item = &table.items[table.slots[at] - 1]
        if item.hash == hash and item.n == n and memcmp(item.p, p, n) == 0:
            return table.slots[at] - 1
        at = (at + 1) & table.slots_mask
    if table.count == table.capacity and grow_items(table) != 0:
        return TABLE_NO_MEMORY
    item = &table.items[table.count]
    item.p = keep(table, p, n)
    if item.p == NULL:
        return TABLE_NO_MEMORY
    item.n = <uint32_t> n
    item.hash = hash
    table.count += 1
    table.slots[at] = table.count
    return table.count - 1
