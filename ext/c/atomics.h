// Atomic loads, stores and updates with acquire and release order, over the compiler's builtins.
//
// `load` acquires, `store` releases, `add` and `cas` do both. The `relaxed` ones order nothing:
// for counters that are only ever read as a number. `tally` is for a counter that one thread
// writes, or all writers under one lock: it costs as much as a plain addition. A value named here
// is written by more than one thread, or written by one and read by another; nothing else needs
// them.
#ifndef KBROKER_ATOMICS_H
#define KBROKER_ATOMICS_H

#include <stdbool.h>
#include <stdint.h>

#define KBROKER_ATOMIC(suffix, type)                                                            \
    static inline type atomic_load_##suffix(const type *at) {                                   \
        return __atomic_load_n(at, __ATOMIC_ACQUIRE);                                           \
    }                                                                                           \
    static inline type atomic_load_relaxed_##suffix(const type *at) {                           \
        return __atomic_load_n(at, __ATOMIC_RELAXED);                                           \
    }                                                                                           \
    static inline void atomic_store_##suffix(type *at, type value) {                            \
        __atomic_store_n(at, value, __ATOMIC_RELEASE);                                          \
    }                                                                                           \
    static inline void atomic_store_relaxed_##suffix(type *at, type value) {                    \
        __atomic_store_n(at, value, __ATOMIC_RELAXED);                                          \
    }                                                                                           \
    static inline type atomic_exchange_##suffix(type *at, type value) {                         \
        return __atomic_exchange_n(at, value, __ATOMIC_ACQ_REL);                                \
    }                                                                                           \
    static inline bool atomic_cas_##suffix(type *at, type *expected, type desired) {            \
        return __atomic_compare_exchange_n(at, expected, desired, false, __ATOMIC_ACQ_REL,      \
                                           __ATOMIC_ACQUIRE);                                   \
    }

#define KBROKER_ATOMIC_NUMBER(suffix, type)                                                     \
    KBROKER_ATOMIC(suffix, type)                                                                \
    static inline type atomic_add_##suffix(type *at, type delta) {                              \
        return __atomic_add_fetch(at, delta, __ATOMIC_ACQ_REL);                                 \
    }                                                                                           \
    static inline type atomic_add_relaxed_##suffix(type *at, type delta) {                      \
        return __atomic_add_fetch(at, delta, __ATOMIC_RELAXED);                                 \
    }                                                                                           \
    static inline void atomic_tally_##suffix(type *at, type delta) {                            \
        atomic_store_relaxed_##suffix(at, atomic_load_relaxed_##suffix(at) + delta);            \
    }

KBROKER_ATOMIC_NUMBER(i32, int32_t)
KBROKER_ATOMIC_NUMBER(i64, int64_t)
KBROKER_ATOMIC_NUMBER(u32, uint32_t)
KBROKER_ATOMIC_NUMBER(u64, uint64_t)
typedef void *kbroker_pointer;
KBROKER_ATOMIC(ptr, kbroker_pointer)

// Full fence: for the store-then-load of a sleeper that announces itself and looks once more.
static inline void atomic_fence(void) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

// Tells the processor that this is a spin.
static inline void cpu_relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

#endif
