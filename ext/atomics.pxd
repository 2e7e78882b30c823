"""Atomics for words shared between threads: loads acquire, stores release, add and cas do both.

`add` returns the new value. `tally` adds to a counter that one thread writes, or one lock guards,
and others read. `cas` leaves what it found in `expected` when it fails. Pointers are
`void**`: cast the address of the pointer.
"""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

cdef extern from "atomics.h" nogil:
    int32_t atomic_load_i32(const int32_t* at) noexcept
    int32_t atomic_load_relaxed_i32(const int32_t* at) noexcept
    void atomic_store_i32(int32_t* at, int32_t value) noexcept
    void atomic_store_relaxed_i32(int32_t* at, int32_t value) noexcept
    int32_t atomic_exchange_i32(int32_t* at, int32_t value) noexcept
    bint atomic_cas_i32(int32_t* at, int32_t* expected, int32_t desired) noexcept
    int32_t atomic_add_i32(int32_t* at, int32_t delta) noexcept
    int32_t atomic_add_relaxed_i32(int32_t* at, int32_t delta) noexcept
    void atomic_tally_i32(int32_t* at, int32_t delta) noexcept

    int64_t atomic_load_i64(const int64_t* at) noexcept
    int64_t atomic_load_relaxed_i64(const int64_t* at) noexcept
    void atomic_store_i64(int64_t* at, int64_t value) noexcept
    void atomic_store_relaxed_i64(int64_t* at, int64_t value) noexcept
    int64_t atomic_exchange_i64(int64_t* at, int64_t value) noexcept
    bint atomic_cas_i64(int64_t* at, int64_t* expected, int64_t desired) noexcept
    int64_t atomic_add_i64(int64_t* at, int64_t delta) noexcept
    int64_t atomic_add_relaxed_i64(int64_t* at, int64_t delta) noexcept
    void atomic_tally_i64(int64_t* at, int64_t delta) noexcept

    uint32_t atomic_load_u32(const uint32_t* at) noexcept
    uint32_t atomic_load_relaxed_u32(const uint32_t* at) noexcept
    void atomic_store_u32(uint32_t* at, uint32_t value) noexcept
    void atomic_store_relaxed_u32(uint32_t* at, uint32_t value) noexcept
    uint32_t atomic_exchange_u32(uint32_t* at, uint32_t value) noexcept
    bint atomic_cas_u32(uint32_t* at, uint32_t* expected, uint32_t desired) noexcept
    uint32_t atomic_add_u32(uint32_t* at, uint32_t delta) noexcept
    uint32_t atomic_add_relaxed_u32(uint32_t* at, uint32_t delta) noexcept

    uint64_t atomic_load_u64(const uint64_t* at) noexcept
    uint64_t atomic_load_relaxed_u64(const uint64_t* at) noexcept
    void atomic_store_u64(uint64_t* at, uint64_t value) noexcept
    void atomic_store_relaxed_u64(uint64_t* at, uint64_t value) noexcept
    uint64_t atomic_exchange_u64(uint64_t* at, uint64_t value) noexcept
    bint atomic_cas_u64(uint64_t* at, uint64_t* expected, uint64_t desired) noexcept
    uint64_t atomic_add_u64(uint64_t* at, uint64_t delta) noexcept
    uint64_t atomic_add_relaxed_u64(uint64_t* at, uint64_t delta) noexcept

    void* atomic_load_ptr(void** at) noexcept
    void* atomic_load_relaxed_ptr(void** at) noexcept
    void atomic_store_ptr(void** at, void* value) noexcept
    void atomic_store_relaxed_ptr(void** at, void* value) noexcept
    void* atomic_exchange_ptr(void** at, void* value) noexcept
    bint atomic_cas_ptr(void** at, void** expected, void* desired) noexcept

    void atomic_fence() noexcept
    void cpu_relax() noexcept
