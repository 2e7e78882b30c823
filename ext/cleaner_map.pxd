"""Which offset is the last of a key: a hash table without the keys.

A key is known by 16 bytes of SipHash-2-4 under a secret of this process, where Apache Kafka takes
MD5: quicker, and nobody who does not know the secret can make two keys collide. By chance, 2^32
keys collide with a probability of 2^-65. A slot is 24 bytes, as Kafka's, so that
log.cleaner.dedupe.buffer.size holds as many keys; open addressing, no deletion.

Belongs to one thread. The memory is there only while a log is cleaned, and no more of it than its
keys need: few of them in many records stay near the processor.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

cdef enum:
    MAP_SLOT_BYTES = 24

ctypedef struct Hash:
    uint64_t a
    uint64_t b

ctypedef struct Slot:
    Hash hash
    int64_t next                        # offset + 1; 0: empty

ctypedef struct OffsetMap:
    Slot* slots                         # NULL: not open
    int64_t slot_count
    int64_t slots_max
    int64_t entries_max
    int64_t count
    int64_t latest_offset               # up to here the log is mapped; -1: nothing
    uint64_t secret[2]

# Room for records_max keys, but for no more than `slots` times load_factor. False: no memory.
cdef bint map_open(OffsetMap* map, int64_t slots, double load_factor,
                   int64_t records_max) noexcept nogil
cdef void map_close(OffsetMap* map) noexcept nogil
cdef void map_hash(const OffsetMap* map, const uint8_t* p, size_t n, Hash* out) noexcept nogil
# Have the slot of a hash brought near before it is looked at.
cdef void map_prefetch(const OffsetMap* map, const Hash* hash) noexcept nogil
# False, and nothing changed, when the map is full (as Kafka has it, also for a key that it knows)
# or there is no memory for a wider one.
cdef bint map_put(OffsetMap* map, const Hash* hash, int64_t offset) noexcept nogil
cdef int64_t map_get(const OffsetMap* map, const Hash* hash) noexcept nogil     # -1: not there
