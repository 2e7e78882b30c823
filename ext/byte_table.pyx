"""A table of distinct byte strings (see byte_table.pxd)."""
import os

from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcmp, memcpy, memset

cdef enum:
    SLOTS_MIN = 64
    ITEMS_MAX = 0x7FFFFFFF

cdef uint64_t MULTIPLIER = 0x9E3779B97F4A7C15
cdef uint64_t _process_seed = int.from_bytes(os.urandom(8), "big")


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


cdef uint32_t bytes_hash(uint64_t seed, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint64_t h = seed ^ n
    cdef uint64_t word
    while n >= 8:
        memcpy(&word, p, 8)
        h = (h ^ word) * MULTIPLIER
        h ^= h >> 29
        p += 8
        n -= 8
    word = 0
    memcpy(&word, p, n)
    h = (h ^ word) * MULTIPLIER
    h ^= h >> 32
    h *= MULTIPLIER
    return <uint32_t> (h >> 32)


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
