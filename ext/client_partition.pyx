"""Which partition a key goes to (see client_partition.pxd)."""
from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.endian cimport load_le32

cdef enum:
    MURMUR_SEED = 0x9747b28c
    MURMUR_M = 0x5bd1e995
    CRC_POLYNOMIAL = 0xEDB88320     # reflected
    FNV_OFFSET = 0x811C9DC5
    FNV_PRIME = 0x01000193
    POSITIVE = 0x7FFFFFFF           # Java's toPositive

cdef uint32_t crc_table[256]


cdef void fill_crc_table() noexcept nogil:
    cdef uint32_t value
    cdef int byte, _bit
    for byte in range(256):
        value = <uint32_t> byte
        for _bit in range(8):
            value = value >> 1 ^ (<uint32_t> CRC_POLYNOMIAL if value & 1 else 0)
        crc_table[byte] = value


fill_crc_table()


cdef uint32_t murmur2(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t h = <uint32_t> MURMUR_SEED ^ <uint32_t> n
    cdef uint32_t k
    while n >= 4:
        k = load_le32(p) * <uint32_t> MURMUR_M
        k = (k ^ k >> 24) * <uint32_t> MURMUR_M
        h = h * <uint32_t> MURMUR_M ^ k
        p += 4
        n -= 4
    if n:
        if n == 3:
            h ^= <uint32_t> p[2] << 16
        if n >= 2:
            h ^= <uint32_t> p[1] << 8
        h = (h ^ p[0]) * <uint32_t> MURMUR_M
    h = (h ^ h >> 13) * <uint32_t> MURMUR_M
    return h ^ h >> 15


cdef uint32_t crc32(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t value = 0xFFFFFFFF
    cdef size_t i
    for i in range(n):
        value = value >> 8 ^ crc_table[(value ^ p[i]) & 0xFF]
    return value ^ <uint32_t> 0xFFFFFFFF


cdef uint32_t fnv1a(const uint8_t* p, size_t n) noexcept nogil:
    cdef uint32_t value = <uint32_t> FNV_OFFSET
    cdef size_t i
    for i in range(n):
        value = (value ^ p[i]) * <uint32_t> FNV_PRIME
    return 0 - value if value >> 31 else value


cdef int32_t partition_of_key(
    int way, const uint8_t* key, int32_t n, int32_t partitions
) noexcept nogil:
    if n < 0:
        if way not in (PARTITION_BY_CONSISTENT, PARTITION_BY_MURMUR2, PARTITION_BY_FNV1A):
            return -1
        n = 0
    if way == PARTITION_BY_STICKY or way == PARTITION_BY_MURMUR2 \
            or way == PARTITION_BY_MURMUR2_RANDOM:
        return <int32_t> (murmur2(key, n) & POSITIVE) % partitions
    if way == PARTITION_BY_CONSISTENT_RANDOM and n == 0:
        return -1                   # librdkafka takes an empty key for none here, and only here
    if way == PARTITION_BY_CONSISTENT or way == PARTITION_BY_CONSISTENT_RANDOM:
        return <int32_t> (crc32(key, n) % <uint32_t> partitions)
    if way == PARTITION_BY_FNV1A or way == PARTITION_BY_FNV1A_RANDOM:
        return <int32_t> (fnv1a(key, n) % <uint32_t> partitions)
    return -1


def hashes(key: bytes) -> tuple[int, int, int]:
    """(murmur2, crc32, fnv1a) of a key, unsigned."""
    cdef Borrowed view = Borrowed(key)
    return murmur2(view.p, view.n), crc32(view.p, view.n), fnv1a(view.p, view.n)
