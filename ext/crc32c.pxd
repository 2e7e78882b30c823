"""CRC-32C (Castagnoli), the checksum of record batches: the quickest way this CPU has.

The way is chosen once, when the module is loaded; afterwards everything here is free of
state and may be called from any thread.
"""
from libc.stdint cimport uint8_t, uint32_t


# CRC-32C of n bytes at p, as a batch header stores it.
cdef uint32_t crc32c(const uint8_t* p, size_t n) noexcept nogil

# CRC-32C of a message whose beginning has the checksum `crc`, and which goes on with n bytes.
cdef uint32_t crc32c_extend(uint32_t crc, const uint8_t* p, size_t n) noexcept nogil

# Checksum of A followed by B from their own checksums; n is the length of B. O(log n).
cdef uint32_t crc32c_combine(uint32_t crc_a, uint32_t crc_b, size_t n) noexcept nogil

# Checksum of a message after `n` bytes in it changed from `before` to `after`, with `tail`
# unchanged bytes behind them, from the checksum of the old message. Reads 2n bytes only.
cdef uint32_t crc32c_patch(
    uint32_t crc, const uint8_t* before, const uint8_t* after, size_t n, size_t tail
) noexcept nogil

# Name of the chosen way: "avx512", "sse42", "armv8" or "table".
cdef const char* crc32c_impl() noexcept nogil
