"""Memory of requests: the global reservation and the buffers for frames that span reads.

`Pool` bounds the bytes of requests held by all connections and queues (queued.max.request.bytes).
A reservation is granted while anything is left, so that the largest frame always gets in; what is
held beyond the bound is at most one frame, plus one read of each network thread.

Buffers above a page come from a free list by powers of two, because the first touch of a page is
dear (3 CPU-s/GB): hot pages are kept up to `cache_bytes_max`, the rest goes back to the system.
Both are shared by all threads; buffers are taken and given back by any of them.
"""
from libc.stdint cimport int64_t, uint8_t, uint64_t

from kbroker.ext.posix cimport pthread_mutex_t

cdef enum:
    # Frames of clients that have not said who they are: one of so many bytes is always taken, the
    # larger ones of all connections have so many together.
    STRANGER_FRAME_BYTES = 16384
    STRANGERS_BYTES_MAX = 33554432
    BUFFER_CLASS_FIRST = 12         # 4 KiB; smaller ones are malloc's
    BUFFER_CLASSES = 17             # up to 256 MiB

cdef struct Pool:
    int64_t bytes_max               # <= 0: no bound
    int64_t available               # atomic; may go below zero, see above
    int64_t waiting_bytes           # atomic: held by connections that wait for a reservation
    int64_t strangers_bytes         # atomic: of large frames of clients that nobody knows yet
    pthread_mutex_t lock            # of the free lists
    void* free[BUFFER_CLASSES]
    int64_t cached_bytes
    int64_t cache_bytes_max
    int64_t live_buffers            # atomic
    int64_t live_bytes              # atomic

cdef void pool_init(Pool* pool, int64_t bytes_max, int64_t cache_bytes_max) noexcept nogil
cdef void pool_destroy(Pool* pool) noexcept nogil
# Gives back to the system what is kept warm.
cdef void pool_trim(Pool* pool) noexcept nogil
cdef bint pool_reserve(Pool* pool, int64_t size) noexcept nogil
cdef void pool_force(Pool* pool, int64_t size) noexcept nogil
# True when somebody may wait for what came free: call net_unstall_all then.
cdef bint pool_release(Pool* pool, int64_t size) noexcept nogil
cdef bint pool_has_room(Pool* pool) noexcept nogil
# For a buffer of `size` bytes with what a stranger has sent: what has been counted for it, to be
# given back with it; -1: they hold too much.
cdef int64_t pool_take_strange(Pool* pool, int64_t size) noexcept nogil
cdef void pool_give_strange(Pool* pool, int64_t counted) noexcept nogil

# At least `size` bytes; *capacity is what was given and is handed back to buffer_free.
cdef uint8_t* buffer_alloc(Pool* pool, uint64_t size, uint64_t* capacity) noexcept nogil
cdef void buffer_free(Pool* pool, uint8_t* buffer, uint64_t capacity) noexcept nogil
