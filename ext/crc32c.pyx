"""CRC-32C: the choice of the way, and Python's face of it."""

from libc.stddef cimport size_t

from kbroker.ext.borrowed cimport Borrowed

cdef extern from "crc32c.h":
    ctypedef uint32_t (*crc32c_fn)(uint32_t raw, const uint8_t* p, size_t n) noexcept nogil
    ctypedef struct crc32c_way:
        const char* name
        crc32c_fn fn
    crc32c_way* crc32c_ways
    int crc32c_ways_count
    void crc32c_init() noexcept nogil
    uint32_t crc32c_run(uint32_t raw, const uint8_t* p, size_t n) noexcept nogil
    uint32_t crc32c_shift(uint32_t raw, size_t n) noexcept nogil


# Below this many bytes the GIL is kept: giving it back and taking it again costs more.
cdef enum:
    GIL_RELEASE_BYTES_MIN = 5120


crc32c_init()


cdef uint32_t crc32c(const uint8_t* p, size_t n) noexcept nogil:
    return ~crc32c_run(0xFFFFFFFF, p, n)


cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil:
    return ~crc32c_run(~crc, p, n)


cdef uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, size_t n) noexcept nogil:
    return crc32c_shift(crc_a, n) ^ crc_b


cdef uint32_t crc32c_patch(
    uint32_t crc, const uint8_t* before, const uint8_t* after, size_t n, size_t tail
) noexcept nogil:
    # The checksum is affine: what changes is the remainder of the difference, moved over the
    # tail. The inversions are in both checksums and cancel.
    return crc ^ crc32c_shift(crc32c(before, n) ^ crc32c(after, n), tail)


cdef const char* crc32c_impl() noexcept nogil:
    return crc32c_ways[0].name


# ---- Python's face

def checksum(data: bytes | bytearray | memoryview, crc: int = 0) -> int:
    """CRC-32C of a buffer, or of what has the checksum `crc` followed by it."""
    cdef Borrowed view = Borrowed(data)
    cdef const uint8_t* p = view.p
    cdef size_t n = view.n
    cdef uint32_t before = crc
    cdef uint32_t after
    if n < GIL_RELEASE_BYTES_MIN:
        return crc32c_extend(before, p, n)
    with nogil:
        after = crc32c_extend(before, p, n)
    return after


def combine(crc_a: int, crc_b: int, length_b: int) -> int:
    """CRC-32C of A followed by B, from theirs."""
    return crc32c_combine(crc_a, crc_b, length_b)


def patch(crc: int, before: bytes, after: bytes, tail: int) -> int:
    """CRC-32C after `before`, with `tail` bytes behind it, has become `after`."""
    if len(before) != len(after):
        raise ValueError("a patch keeps the length")
    return crc32c_patch(crc, before, after, len(before), tail)


def implementation() -> str:
    """Name of the way that is used: avx512, sse42, armv8 or table."""
    return crc32c_impl().decode()


def implementations() -> list[str]:
    """Every way that this CPU can go, the quickest first."""
    return [crc32c_ways[i].name.decode() for i in range(crc32c_ways_count)]


def checksum_by(name: str, data: bytes) -> int:
    """CRC-32C by a named one of `implementations`."""
    cdef const uint8_t* p = data
    cdef size_t n = len(data)
    cdef uint32_t raw
    for i in range(crc32c_ways_count):
        if crc32c_ways[i].name.decode() == name:
            with nogil:
                raw = crc32c_ways[i].fn(0xFFFFFFFF, p, n)
            return <uint32_t> ~raw
    raise ValueError(f"this CPU has no {name}")
