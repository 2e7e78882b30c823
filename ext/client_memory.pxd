"""The producer's memory: `buffer.memory` bytes, given out to batches in the order of asking.

Pieces of the pool's own size (`batch.size`) are kept in a free list, because their pages are warm;
others come from malloc. Who finds too little waits without the GIL until others gave back as much;
what comes free goes to the one who has waited longest. For some milliseconds it waits until an
eighth of the memory is free: a producer that outruns its broker would else be woken for each batch.
Any thread.

A producer that outruns its broker would also go round all of the memory, and each piece would have
left the processor's cache when it is filled and again when it is sent: 0.16 CPU-s/GB where 0.06 do.
So send_batch() waits (`memory_ease`) while more is under way than keeps brokers busy, `ahead_max`,
and goes on when half of that is; but only as long as batches leave.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    MEMORY_OK = 0
    MEMORY_TIMEOUT = -1             # not enough came free in time
    MEMORY_CLOSED = -2
    MEMORY_NONE = -3                # malloc failed
    MEMORY_INTERRUPTED = -4         # as `interrupted` said

cdef struct MemoryWaiter:           # on the waiting thread's stack
    pthread_cond_t granted
    MemoryWaiter* next
    int64_t size
    int64_t wanted                  # bytes available when it is woken: at least its size
    bint done

cdef struct MemoryPool:
    pthread_mutex_t lock
    int64_t bytes_max
    int64_t available
    int64_t piece_bytes
    void* free                      # kept pieces, counted in `available`
    int64_t kept
    MemoryWaiter* head              # the longest-waiting first
    MemoryWaiter* tail
    int32_t waiting                 # atomic: the sender looks without the lock
    int64_t waits                   # how often somebody waited, for metrics
    int64_t wait_ns
    bint closed
    # Asked now and then by who waits, without the lock: True ends the wait.
    bint (*interrupted)() noexcept nogil
    # Batches that are full, and those on their way.
    pthread_cond_t eased
    int64_t ahead                   # atomic: their bytes
    int64_t ahead_max               # atomic: who sends many waits above it; 0: no bound
    int64_t departed                # atomic: how many have left
    int64_t stuck_at                # of `departed`, when waiting was of no use
    int32_t easing                  # atomic: threads in memory_ease

cdef void memory_init(MemoryPool* pool, int64_t bytes_max, int64_t piece_bytes) noexcept nogil
cdef void memory_destroy(MemoryPool* pool) noexcept nogil
# `size` bytes at *out. Where there are too few: waits until deadline_ns (monotonic), not at all
# where that is past. MEMORY_*.
cdef int memory_take(
    MemoryPool* pool, int64_t size, int64_t deadline_ns, uint8_t** out
) noexcept nogil
cdef void memory_give(MemoryPool* pool, uint8_t* p, int64_t size) noexcept nogil
# The account alone: `given` bytes that somebody had taken became `taken` others, at once.
cdef void memory_trade(MemoryPool* pool, int64_t given, int64_t taken) noexcept nogil
# A batch is full or drained (bytes > 0), or has its outcome (< 0).
cdef void memory_ahead(MemoryPool* pool, int64_t size) noexcept nogil
# Waits while more than ahead_max is under way, as long as that goes on and until deadline_ns.
# MEMORY_OK or MEMORY_INTERRUPTED.
cdef int memory_ease(MemoryPool* pool, int64_t deadline_ns) noexcept nogil
# Wakes all who wait, for good.
cdef void memory_close(MemoryPool* pool) noexcept nogil
