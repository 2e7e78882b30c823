"""The producer's memory (see client_memory.pxd)."""
from libc.stdlib cimport free, malloc
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_add_i64, atomic_load_i32, atomic_load_relaxed_i64,
)
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_signal, pthread_cond_timedwait,
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.sockets cimport cond_init_monotonic

cdef enum:
    WAKING_SHARE = 8
    PATIENCE_NS = 5_000_000
    EASE_NS = 50_000_000            # without a batch that leaves
    LOOK_NS = 100_000_000           # a wait looks for Ctrl-C so often


cdef bint never_interrupted() noexcept nogil:
    return False


cdef void memory_init(MemoryPool* pool, int64_t bytes_max, int64_t piece_bytes) noexcept nogil:
    memset(pool, 0, sizeof(MemoryPool))
    pthread_mutex_init(&pool.lock, NULL)
    cond_init_monotonic(&pool.eased)
    pool.interrupted = never_interrupted
    pool.stuck_at = -1
    pool.bytes_max = bytes_max
    pool.available = bytes_max
    pool.piece_bytes = piece_bytes


cdef void memory_destroy(MemoryPool* pool) noexcept nogil:
    cdef void* piece
    while pool.free != NULL:
        piece = pool.free
        pool.free = (<void**> piece)[0]
        free(piece)
    pthread_cond_destroy(&pool.eased)
    pthread_mutex_destroy(&pool.lock)


cdef int wait_locked(MemoryPool* pool, int64_t size, int64_t deadline_ns) noexcept nogil:
    """Until `size` bytes were put aside for us."""
    cdef int64_t began_ns = monotonic_ns()
    cdef int64_t now_ns = began_ns
    cdef int64_t until_ns = min(deadline_ns, began_ns + PATIENCE_NS)
    cdef int64_t look_ns = began_ns + LOOK_NS
    cdef bint interrupted = False
    cdef MemoryWaiter waiter
    cdef timespec_t until
    cdef int code = MEMORY_OK
    if deadline_ns <= began_ns:
        return MEMORY_TIMEOUT
    cond_init_monotonic(&waiter.granted)
    waiter.next = NULL
    waiter.size = size
    waiter.wanted = max(size, pool.bytes_max // WAKING_SHARE)
    waiter.done = False
    if pool.tail != NULL:
        pool.tail.next = &waiter
    else:
        pool.head = &waiter
    pool.tail = &waiter
    atomic_add_i32(&pool.waiting, 1)
    pool.waits += 1
    while not waiter.done and not pool.closed and not interrupted:
        if now_ns >= until_ns:
            if until_ns == deadline_ns and waiter.wanted == size:
                break
            waiter.wanted = size
            until_ns = deadline_ns
            grant_locked(pool)
            continue
        until = timespec_of(min(until_ns, look_ns))
        pthread_cond_timedwait(&waiter.granted, &pool.lock, &until)
        now_ns = monotonic_ns()
        if now_ns >= look_ns and not waiter.done:
            interrupted = interrupted_locked(pool)
            now_ns = monotonic_ns()
            look_ns = now_ns + LOOK_NS
    if interrupted and waiter.done:         # meanwhile
        pool.available += size
        grant_locked(pool)
    elif not waiter.done:
        code = MEMORY_CLOSED if pool.closed else MEMORY_TIMEOUT
        forget_locked(pool, &waiter)
    atomic_add_i32(&pool.waiting, -1)
    pool.wait_ns += monotonic_ns() - began_ns
    pthread_cond_destroy(&waiter.granted)
    return MEMORY_INTERRUPTED if interrupted else code


cdef bint interrupted_locked(MemoryPool* pool) noexcept nogil:
    """Without the lock meanwhile: who has the GIL may be waiting for it."""
    cdef bint told
    pthread_mutex_unlock(&pool.lock)
    told = pool.interrupted()
    pthread_mutex_lock(&pool.lock)
    return told


cdef void forget_locked(MemoryPool* pool, MemoryWaiter* waiter) noexcept nogil:
    cdef MemoryWaiter** link = &pool.head
    cdef MemoryWaiter* before = NULL
    while link[0] != waiter:
        before = link[0]
        link = &before.next
    link[0] = waiter.next
    if pool.tail == waiter:
        pool.tail = before
    grant_locked(pool)              # who stood behind may ask for less


cdef void grant_locked(MemoryPool* pool) noexcept nogil:
    cdef MemoryWaiter* waiter
    while pool.head != NULL and pool.head.wanted <= pool.available:
        waiter = pool.head
        pool.head = waiter.next
        if pool.head == NULL:
            pool.tail = NULL
        pool.available -= waiter.size
        waiter.done = True
        pthread_cond_signal(&waiter.granted)


cdef void trim_locked(MemoryPool* pool) noexcept nogil:
    """What is kept is no more than what nobody has taken, so that the bound holds for both."""
    cdef void* piece
    while pool.free != NULL and pool.kept * pool.piece_bytes > pool.available:
        piece = pool.free
        pool.free = (<void**> piece)[0]
        pool.kept -= 1
        free(piece)


cdef int memory_take(
    MemoryPool* pool, int64_t size, int64_t deadline_ns, uint8_t** out
) noexcept nogil:
    cdef void* piece = NULL
    cdef int code = MEMORY_OK
    pthread_mutex_lock(&pool.lock)
    if pool.closed:
        code = MEMORY_CLOSED
    elif pool.head == NULL and pool.available >= size:
        pool.available -= size
    else:
        code = wait_locked(pool, size, deadline_ns)
    if code == MEMORY_OK and size == pool.piece_bytes and pool.free != NULL:
        piece = pool.free
        pool.free = (<void**> piece)[0]
        pool.kept -= 1
    if code == MEMORY_OK:
        trim_locked(pool)
    pthread_mutex_unlock(&pool.lock)
    if code != MEMORY_OK:
        return code
    if piece == NULL:
        piece = malloc(size)
        if piece == NULL:
            memory_give(pool, NULL, size)
            return MEMORY_NONE
    out[0] = <uint8_t*> piece
    return MEMORY_OK


cdef void memory_give(MemoryPool* pool, uint8_t* p, int64_t size) noexcept nogil:
    cdef bint kept = False
    pthread_mutex_lock(&pool.lock)
    pool.available += size
    if p != NULL and size == pool.piece_bytes and size >= <int64_t> sizeof(void*) \
            and not pool.closed:
        (<void**> p)[0] = pool.free
        pool.free = p
        pool.kept += 1
        kept = True
    grant_locked(pool)
    pthread_mutex_unlock(&pool.lock)
    if not kept:
        free(p)


cdef void memory_trade(MemoryPool* pool, int64_t given, int64_t taken) noexcept nogil:
    pthread_mutex_lock(&pool.lock)
    pool.available += given - taken
    trim_locked(pool)
    grant_locked(pool)
    pthread_mutex_unlock(&pool.lock)


cdef void memory_ahead(MemoryPool* pool, int64_t size) noexcept nogil:
    cdef int64_t now = atomic_add_i64(&pool.ahead, size)
    if size >= 0:
        return
    atomic_add_i64(&pool.departed, 1)
    if atomic_load_i32(&pool.easing) > 0 and now <= atomic_load_relaxed_i64(&pool.ahead_max) // 2:
        pthread_mutex_lock(&pool.lock)
        pthread_cond_broadcast(&pool.eased)
        pthread_mutex_unlock(&pool.lock)


cdef int memory_ease(MemoryPool* pool, int64_t deadline_ns) noexcept nogil:
    cdef int64_t most = atomic_load_relaxed_i64(&pool.ahead_max)
    cdef int64_t departed = -1
    cdef int64_t until_ns = 0
    cdef int64_t look_ns, now_ns
    cdef timespec_t until
    cdef bint interrupted = False
    if most == 0 or atomic_load_relaxed_i64(&pool.ahead) <= most \
            or atomic_load_relaxed_i64(&pool.departed) == pool.stuck_at:
        return MEMORY_OK
    look_ns = monotonic_ns() + LOOK_NS
    pthread_mutex_lock(&pool.lock)
    atomic_add_i32(&pool.easing, 1)
    while atomic_load_relaxed_i64(&pool.ahead) > most // 2 and not pool.closed and not interrupted:
        now_ns = monotonic_ns()
        if departed != atomic_load_relaxed_i64(&pool.departed):
            departed = atomic_load_relaxed_i64(&pool.departed)
            until_ns = now_ns + EASE_NS
        if now_ns >= min(until_ns, deadline_ns):
            pool.stuck_at = departed
            break
        until = timespec_of(min(until_ns, deadline_ns))
        pthread_cond_timedwait(&pool.eased, &pool.lock, &until)
        if now_ns >= look_ns:
            interrupted = interrupted_locked(pool)
            look_ns = monotonic_ns() + LOOK_NS
    atomic_add_i32(&pool.easing, -1)
    pthread_mutex_unlock(&pool.lock)
    return MEMORY_INTERRUPTED if interrupted else MEMORY_OK


cdef void memory_close(MemoryPool* pool) noexcept nogil:
    cdef MemoryWaiter* waiter
    pthread_mutex_lock(&pool.lock)
    pool.closed = True
    waiter = pool.head
    while waiter != NULL:
        pthread_cond_signal(&waiter.granted)
        waiter = waiter.next
    pthread_cond_broadcast(&pool.eased)
    pthread_mutex_unlock(&pool.lock)
