"""Which partition a key goes to: the hashes of Java's client and of librdkafka.

murmur2 is MurmurHash2 of 32 bits with Kafka's seed; crc32 is zlib's polynomial (librdkafka's
`consistent`); fnv1a is librdkafka's, the absolute value of an int32. Free of state.
"""
from libc.stdint cimport int32_t, uint8_t, uint32_t

cdef enum:                          # how a record without a partition of its own finds one
    PARTITION_BY_STICKY = 0         # murmur2 of the key, sticky without (KIP-480, KIP-794)
    PARTITION_BY_ROUND_ROBIN = 1
    PARTITION_BY_CONSISTENT = 2     # crc32 of the key, null is the empty key
    PARTITION_BY_CONSISTENT_RANDOM = 3  # crc32 of the key, any without
    PARTITION_BY_MURMUR2 = 4        # murmur2, null is the empty key
    PARTITION_BY_MURMUR2_RANDOM = 5
    PARTITION_BY_FNV1A = 6
    PARTITION_BY_FNV1A_RANDOM = 7
    PARTITION_BY_RANDOM = 8
    PARTITION_BY_CALLABLE = 9       # Python says which

cdef uint32_t murmur2(const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t crc32(const uint8_t* p, size_t n) noexcept nogil
cdef uint32_t fnv1a(const uint8_t* p, size_t n) noexcept nogil

# The partition of a key by one of the hashing ways; -1 where the way leaves it to chance
# (no key and not a way that takes null for the empty key).
cdef int32_t partition_of_key(
    int way, const uint8_t* key, int32_t n, int32_t partitions
) noexcept nogil
