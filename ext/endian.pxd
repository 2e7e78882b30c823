"""Loads and stores of integers at any address, big-endian as the wire and the log have them.

The caller has already checked that the bytes are inside its buffer.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint32_t, uint64_t

cdef extern from "endian_io.h" nogil:
    uint16_t load_be16(const void* at) noexcept
    uint32_t load_be32(const void* at) noexcept
    uint64_t load_be64(const void* at) noexcept
    void store_be16(void* at, uint16_t value) noexcept
    void store_be32(void* at, uint32_t value) noexcept
    void store_be64(void* at, uint64_t value) noexcept

    uint16_t load_le16(const void* at) noexcept
    uint32_t load_le32(const void* at) noexcept
    uint64_t load_le64(const void* at) noexcept
    void store_le16(void* at, uint16_t value) noexcept
    void store_le32(void* at, uint32_t value) noexcept
    void store_le64(void* at, uint64_t value) noexcept


cdef inline int16_t load_i16(const void* at) noexcept nogil:
    return <int16_t> load_be16(at)


cdef inline int32_t load_i32(const void* at) noexcept nogil:
    return <int32_t> load_be32(at)


cdef inline int64_t load_i64(const void* at) noexcept nogil:
    return <int64_t> load_be64(at)
