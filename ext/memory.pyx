"""Reservation and buffers of request memory (see memory.pxd)."""
from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_i64, atomic_add_relaxed_i64, atomic_load_i64, atomic_load_relaxed_i64,
    atomic_tally_i64,
)
from kbroker.ext.bits cimport highest_bit
from kbroker.ext.posix cimport (
    MAP_ANONYMOUS, MAP_FAILED, MAP_PRIVATE, PROT_READ, PROT_WRITE, mmap, munmap,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef enum:
    MALLOC_BYTES_MAX = 4096         # below a page malloc is at least as good


cdef void pool_init(Pool* pool, int64_t bytes_max, int64_t cache_bytes_max) noexcept nogil:
    memset(pool, 0, sizeof(Pool))
    pool.bytes_max = bytes_max
    pool.available = bytes_max
    pool.cache_bytes_max = cache_bytes_max
    pthread_mutex_init(&pool.lock, NULL)


cdef void pool_trim(Pool* pool) noexcept nogil:
    cdef int index
    cdef void* buffer
    pthread_mutex_lock(&pool.lock)
    for index in range(BUFFER_CLASSES):
        while pool.free[index] != NULL:
            buffer = pool.free[index]
            pool.free[index] = (<void**> buffer)[0]
            munmap(buffer, <uint64_t> 1 << (BUFFER_CLASS_FIRST + index))
    pool.cached_bytes = 0
    pthread_mutex_unlock(&pool.lock)


cdef void pool_destroy(Pool* pool) noexcept nogil:
    pool_trim(pool)
    pthread_mutex_destroy(&pool.lock)


cdef int64_t pool_take_strange(Pool* pool, int64_t size) noexcept nogil:
    if size <= STRANGER_FRAME_BYTES:
        return 0
    if atomic_add_i64(&pool.strangers_bytes, size) > STRANGERS_BYTES_MAX:
        atomic_add_i64(&pool.strangers_bytes, -size)
        return -1
    return size


cdef void pool_give_strange(Pool* pool, int64_t counted) noexcept nogil:
    if counted > 0:
        atomic_add_i64(&pool.strangers_bytes, -counted)


cdef bint pool_has_room(Pool* pool) noexcept nogil:
    """False when nothing should be read that would have to be kept."""
    return pool.bytes_max <= 0 or atomic_load_relaxed_i64(&pool.available) > 0


cdef bint pool_reserve(Pool* pool, int64_t size) noexcept nogil:
    """Granted while anything is left; what waiting connections hold does not count against it,
    or a hundred waiting ones could keep each other out for good."""
    if pool.bytes_max <= 0:
        return True
    cdef int64_t left = atomic_add_i64(&pool.available, -size)
    if left + size + atomic_load_i64(&pool.waiting_bytes) > 0:
        return True
    atomic_add_i64(&pool.available, size)
    return False


cdef void pool_force(Pool* pool, int64_t size) noexcept nogil:
    if pool.bytes_max > 0:
        atomic_add_i64(&pool.available, -size)


cdef bint pool_release(Pool* pool, int64_t size) noexcept nogil:
    if pool.bytes_max <= 0 or size == 0:
        return False
    atomic_add_i64(&pool.available, size)
    return True


cdef uint8_t* class_alloc(Pool* pool, int index, uint64_t size) noexcept nogil:
    cdef void* buffer
    pthread_mutex_lock(&pool.lock)
    buffer = pool.free[index]
    if buffer != NULL:
        pool.free[index] = (<void**> buffer)[0]
        atomic_tally_i64(&pool.cached_bytes, -<int64_t> size)
    pthread_mutex_unlock(&pool.lock)
    if buffer != NULL:
        return <uint8_t*> buffer
    buffer = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)
    if buffer == MAP_FAILED:
        return NULL
    return <uint8_t*> buffer


cdef uint8_t* buffer_alloc(Pool* pool, uint64_t size, uint64_t* capacity) noexcept nogil:
    cdef uint8_t* buffer
    cdef uint64_t given = size
    cdef int index
    if size <= MALLOC_BYTES_MAX:
        if given < 64:
            given = 64
        buffer = <uint8_t*> malloc(given)
    else:
        index = highest_bit(size - 1) + 1 - BUFFER_CLASS_FIRST
        if index >= BUFFER_CLASSES:
            return NULL
        given = <uint64_t> 1 << (BUFFER_CLASS_FIRST + index)
        buffer = class_alloc(pool, index, given)
    if buffer == NULL:
        return NULL
    capacity[0] = given
    atomic_add_relaxed_i64(&pool.live_buffers, 1)
    atomic_add_relaxed_i64(&pool.live_bytes, <int64_t> given)
    return buffer


cdef void buffer_free(Pool* pool, uint8_t* buffer, uint64_t capacity) noexcept nogil:
    cdef bint kept = False
    cdef int index
    if buffer == NULL:
        return
    atomic_add_relaxed_i64(&pool.live_buffers, -1)
    atomic_add_relaxed_i64(&pool.live_bytes, -<int64_t> capacity)
    if capacity <= MALLOC_BYTES_MAX:
        free(buffer)
        return
    index = highest_bit(capacity) - BUFFER_CLASS_FIRST
    pthread_mutex_lock(&pool.lock)
    if pool.cached_bytes + <int64_t> capacity <= pool.cache_bytes_max:
        (<void**> buffer)[0] = pool.free[index]
        pool.free[index] = buffer
        atomic_tally_i64(&pool.cached_bytes, <int64_t> capacity)
        kept = True
    pthread_mutex_unlock(&pool.lock)
    if not kept:
        munmap(buffer, capacity)
