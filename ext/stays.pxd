"""A stay of a thread in log directories, as its fields go (see runners.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint64_t

from kbroker.ext.atomics cimport (
    atomic_load_relaxed_u64, atomic_load_u64, atomic_store_relaxed_i32, atomic_store_relaxed_u64,
)

# A thread's work in log directories, for the watch (watch.pxd). Written by the thread.
cdef struct Stay:
    uint64_t turn                   # atomic: odd while it lasts; STAY_HANGS: taken for hanging
    uint64_t steps                  # atomic: odd in an append, and not while it computes
    int32_t place                   # atomic: of the directory at hand
    int32_t hangs_at                # hang_lock, as what follows: the place then
    uint64_t seen_turn
    uint64_t seen_steps
    int64_t seen_ns                 # monotonic: when these two were first seen

cdef enum:
    STAY_HANGS = 0x4000000000000000     # of Stay.turn


cdef inline void stay_enters(Stay* stay, int32_t place) noexcept nogil:
    """A log of this directory."""
    atomic_store_relaxed_i32(&stay.place, place)
    atomic_store_relaxed_u64(&stay.steps, stay.steps + 1)


cdef inline void stay_leaves(Stay* stay) noexcept nogil:
    atomic_store_relaxed_u64(&stay.steps, stay.steps + 1)


cdef inline bint stay_hangs(const Stay* stay) noexcept nogil:
    return (atomic_load_u64(&stay.turn) & <uint64_t>STAY_HANGS) != 0
