"""Which offset is the last of a key (see cleaner_map.pxd)."""
from kbroker.ext.endian cimport load_le64
from kbroker.ext.posix cimport (
    MADV_DONTNEED, MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, madvise, mmap,
    munmap,
)

cdef extern from * nogil:
    void __builtin_prefetch(const void* at) noexcept

cdef enum:
    # Twice as many slots as keys where memory allows: few probes.
    SLOTS_PER_KEY = 2
    SLOTS_MIN = 1024
    RELEASED_SLOTS = 1 << 16    # at a time: 1.5 MiB, whole pages


# ---- SipHash-2-4 with 128 bits (Aumasson and Bernstein; the reference code's 16-byte variant)

cdef inline uint64_t rotate(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[1] = rotate(v[1], 13) ^ v[0]
    v[0] = rotate(v[0], 32)
    v[2] += v[3]
    v[3] = rotate(v[3], 16) ^ v[2]
    v[0] += v[3]
    v[3] = rotate(v[3], 21) ^ v[0]
    v[2] += v[1]
    v[1] = rotate(v[1], 17) ^ v[2]
    v[2] = rotate(v[2], 32)


cdef inline void sip_absorb(uint64_t* v, uint64_t word) noexcept nogil:
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word


cdef inline uint64_t sip_squeeze(uint64_t* v) noexcept nogil:
    sip_round(v)
    sip_round(v)
    sip_round(v)
    sip_round(v)
    return v[0] ^ v[1] ^ v[2] ^ v[3]


cdef void map_hash(const OffsetMap* map, const uint8_t* p, size_t n, Hash* out) noexcept nogil:
    cdef uint64_t v[4]
    cdef uint64_t tail = <uint64_t> n << 56
    cdef const uint8_t* end = p + (n & ~<size_t> 7)
    cdef size_t i
    v[0] = map.secret[0] ^ <uint64_t> 0x736F6D6570736575
    v[1] = map.secret[1] ^ <uint64_t> 0x646F72616E646F6D ^ 0xEE
    v[2] = map.secret[0] ^ <uint64_t> 0x6C7967656E657261
    v[3] = map.secret[1] ^ <uint64_t> 0x7465646279746573
    while p < end:
        sip_absorb(v, load_le64(p))
        p += 8
    for i in range(n & 7):
        tail |= <uint64_t> p[i] << 8 * i
    sip_absorb(v, tail)
    v[2] ^= 0xEE
    out.a = sip_squeeze(v)
    v[1] ^= 0xDD
    out.b = sip_squeeze(v)


# ---- the table

cdef Slot* take_slots(int64_t n) noexcept nogil:
    cdef void* taken = mmap(
        NULL, <size_t> n * sizeof(Slot), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0
    )
    return <Slot*> taken if taken != MAP_FAILED else NULL


cdef bint map_open(OffsetMap* map, int64_t slots, double load_factor,
                   int64_t records_max) noexcept nogil:
    slots = max(<int64_t> 2, min(slots, <int64_t> 0xFFFFFFFF))
    map.entries_max = max(<int64_t> 1, <int64_t> (slots * load_factor))
    if records_max < slots // SLOTS_PER_KEY:
        slots = max(<int64_t> SLOTS_MIN, records_max * SLOTS_PER_KEY)
    # A probe ends at an empty slot: there is always one.
    map.entries_max = min(map.entries_max, slots - 1)
    map.slots_max = slots
    map.slot_count = min(slots, <int64_t> SLOTS_MIN)
    map.count = 0
    map.latest_offset = -1
    map.slots = take_slots(map.slot_count)
    return map.slots != NULL


cdef void map_close(OffsetMap* map) noexcept nogil:
    if map.slots != NULL:
        munmap(map.slots, <size_t> map.slot_count * sizeof(Slot))
    map.slots = NULL


cdef inline int64_t first_slot(const OffsetMap* map, const Hash* hash) noexcept nogil:
    return <int64_t> ((hash.a >> 32) * <uint64_t> map.slot_count >> 32)


cdef void map_prefetch(const OffsetMap* map, const Hash* hash) noexcept nogil:
    __builtin_prefetch(&map.slots[first_slot(map, hash)])


cdef inline Slot* find(const OffsetMap* map, const Hash* hash) noexcept nogil:
    """The slot of this hash, or the empty one where it belongs."""
    cdef int64_t i = first_slot(map, hash)
    cdef Slot* slot = &map.slots[i]
    while slot.next != 0 and (slot.hash.a != hash.a or slot.hash.b != hash.b):
        i += 1
        if i == map.slot_count:
            i = 0
        slot = &map.slots[i]
    return slot


cdef bint grow(OffsetMap* map) noexcept nogil:
    """Twice the slots, or all that there may be. Both tables are in the order of the hashes, so
    what has been moved is given back on the way: together they take what the new one will."""
    cdef OffsetMap wider = map[0]
    cdef Slot* slot
    cdef int64_t i
    wider.slot_count = min(map.slot_count * 2, map.slots_max)
    wider.slots = take_slots(wider.slot_count)
    if wider.slots == NULL:
        return False
    for i in range(map.slot_count):
        slot = &map.slots[i]
        if slot.next != 0:
            find(&wider, &slot.hash)[0] = slot[0]
        if (i + 1) % RELEASED_SLOTS == 0:
            madvise(slot + 1 - RELEASED_SLOTS, RELEASED_SLOTS * sizeof(Slot), MADV_DONTNEED)
    map_close(map)
    map[0] = wider
    return True


cdef bint map_put(OffsetMap* map, const Hash* hash, int64_t offset) noexcept nogil:
    cdef Slot* slot
    if map.count >= map.entries_max:
        return False
    if map.count * SLOTS_PER_KEY >= map.slot_count and map.slot_count < map.slots_max:
        if not grow(map):
            return False
    slot = find(map, hash)
    if slot.next == 0:
        slot.hash = hash[0]
        map.count += 1
    slot.next = offset + 1
    map.latest_offset = offset
    return True


cdef int64_t map_get(const OffsetMap* map, const Hash* hash) noexcept nogil:
    return find(map, hash).next - 1
