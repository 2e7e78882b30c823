"""The session cache; see sessions.pxd for what a session is and who may hold what.

A full cache gives the place of the session that was unused for longest, if that was at least
`eviction_ms`; else the client gets no session and fetches without one, as with Apache Kafka. Full
is a cache of too many sessions or of too many bytes; the latter bound is ours, Kafka has none.
"""
from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_i32,
    atomic_add_i64,
    atomic_add_u64,
    atomic_load_i64,
)
from kbroker.ext.byte_table cimport bytes_hash, process_seed
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kbroker.ext.wire cimport REQUEST_PARTITIONS_MAX

cdef enum:
    BUCKETS_FIRST = 16
    EVICTION_MS = 120000
    ALLOCATION_BYTES = 16           # what malloc adds to a partition, and its place in the buckets

cdef uint64_t id_counter = 0


cdef uint64_t mix(uint64_t x) noexcept nogil:
    """Finalizer of splitmix64: a bijection without patterns."""
    x = (x ^ (x >> 30)) * <uint64_t>0xBF58476D1CE4E5B9
    x = (x ^ (x >> 27)) * <uint64_t>0x94D049BB133111EB
    return x ^ (x >> 31)


cdef uint32_t target_hash(const FetchTarget* target) noexcept nogil:
    cdef uint64_t seed = mix(process_seed() ^ <uint32_t>target.partition)
    if target.name == NULL:
        return bytes_hash(seed, target.id, 16)
    return bytes_hash(seed, target.name, <size_t>target.name_length)


cdef bint same_target(const FetchTarget* a, const FetchTarget* b) noexcept nogil:
    if a.partition != b.partition or a.name_length != b.name_length:
        return False
    if a.name == NULL or b.name == NULL:
        return a.name == b.name and memcmp(a.id, b.id, 16) == 0
    return memcmp(a.name, b.name, <size_t>a.name_length) == 0


cdef int32_t next_epoch(int32_t epoch) noexcept nogil:
    return 1 if epoch == 0x7FFFFFFF else epoch + 1


# -- the cache ------------------------------------------------------------------------------

cdef inline SessionShard* shard_of(SessionCache* cache, int32_t session_id) noexcept nogil:
    return &cache.shards[session_id & (SESSION_SHARDS - 1)]


cdef inline Session** bucket_of(SessionShard* shard, int32_t session_id) noexcept nogil:
    return &shard.buckets[(session_id >> 4) & (SESSION_BUCKETS - 1)]


cdef void sessions_init(SessionCache* cache, int64_t slots_max) noexcept nogil:
    cdef int i
    memset(cache, 0, sizeof(SessionCache))
    cache.slots_max = slots_max
    cache.eviction_ms = EVICTION_MS
    for i in range(SESSION_SHARDS):
        pthread_mutex_init(&cache.shards[i].lock, NULL)


cdef void sessions_destroy(SessionCache* cache) noexcept nogil:
    cdef Session* session
    cdef int i, j
    for i in range(SESSION_SHARDS):
        for j in range(SESSION_BUCKETS):
            while cache.shards[i].buckets[j] != NULL:
                session = cache.shards[i].buckets[j]
                cache.shards[i].buckets[j] = session.chain
                session_unref(session)
        pthread_mutex_destroy(&cache.shards[i].lock)
    cache.count = 0


cdef Session* session_find(SessionCache* cache, int32_t session_id) noexcept nogil:
    cdef SessionShard* shard = shard_of(cache, session_id)
    cdef Session* session
    pthread_mutex_lock(&shard.lock)
    session = bucket_of(shard, session_id)[0]
    while session != NULL and session.id != session_id:
        session = session.chain
    if session != NULL:
        atomic_add_i32(&session.refs, 1)
    pthread_mutex_unlock(&shard.lock)
    return session


cdef void session_unref(Session* session) noexcept nogil:
    cdef SessionPartition* partition
    cdef SessionPartition* following
    if atomic_add_i32(&session.refs, -1) != 0:
        return
    partition = session.order.next
    while partition != &session.order:
        following = partition.next
        partition_free(session, partition)
        partition = following
    pthread_mutex_destroy(&session.lock)
    free(session.buckets)
    free(session)


cdef void session_remove(SessionCache* cache, int32_t session_id) noexcept nogil:
    cdef SessionShard* shard = shard_of(cache, session_id)
    cdef Session** link
    cdef Session* session
    pthread_mutex_lock(&shard.lock)
    link = bucket_of(shard, session_id)
    while link[0] != NULL and link[0].id != session_id:
        link = &link[0].chain
    session = link[0]
    if session != NULL:
        link[0] = session.chain
        atomic_add_i64(&cache.count, -1)
    pthread_mutex_unlock(&shard.lock)
    if session != NULL:
        session_unref(session)


cdef bint evict(SessionCache* cache, int64_t now_ms) noexcept nogil:
    """Remove the session unused for longest, if that is long enough."""
    cdef Session* session
    cdef int64_t oldest = now_ms - cache.eviction_ms
    cdef int32_t victim = SESSIONLESS_ID
    cdef int i, j
    for i in range(SESSION_SHARDS):
        pthread_mutex_lock(&cache.shards[i].lock)
        for j in range(SESSION_BUCKETS):
            session = cache.shards[i].buckets[j]
            while session != NULL:
                if session.last_used_ms <= oldest:
                    oldest = session.last_used_ms
                    victim = session.id
                session = session.chain
        pthread_mutex_unlock(&cache.shards[i].lock)
    if victim == SESSIONLESS_ID:
        return False
    session_remove(cache, victim)
    return True


cdef int32_t draw_id(SessionCache* cache) noexcept nogil:
    """A positive id that no session has: not to be guessed by counting, and not secret."""
    cdef int32_t drawn = SESSIONLESS_ID
    cdef Session* taken
    while True:
        drawn = <int32_t>(mix(atomic_add_u64(&id_counter, 1) ^ <uint64_t>monotonic_ns())
                          & 0x7FFFFFFF)
        if drawn == SESSIONLESS_ID:
            continue
        taken = session_find(cache, drawn)
        if taken == NULL:
            return drawn
        session_unref(taken)


cdef Session* session_create(SessionCache* cache, bint uses_ids, int64_t now_ms) noexcept nogil:
    cdef Session* session
    cdef SessionShard* shard
    cdef Session** bucket
    if (atomic_load_i64(&cache.count) >= cache.slots_max
            or atomic_load_i64(&cache.bytes) >= SESSIONS_BYTES_MAX) and not evict(cache, now_ms):
        return NULL
    session = <Session*>calloc(1, sizeof(Session))
    if session == NULL:
        return NULL
    session.buckets = <SessionPartition**>calloc(BUCKETS_FIRST, sizeof(void*))
    if session.buckets == NULL:
        free(session)
        return NULL
    session.cache = cache
    session.mask = BUCKETS_FIRST - 1
    session.order.next = session.order.previous = &session.order
    session.id = draw_id(cache)
    session.epoch = next_epoch(INITIAL_EPOCH)
    session.refs = 2                # the cache's and the caller's
    session.uses_ids = uses_ids
    session.last_used_ms = now_ms
    pthread_mutex_init(&session.lock, NULL)
    shard = shard_of(cache, session.id)
    pthread_mutex_lock(&shard.lock)
    bucket = bucket_of(shard, session.id)
    session.chain = bucket[0]
    bucket[0] = session
    atomic_add_i64(&cache.count, 1)
    pthread_mutex_unlock(&shard.lock)
    return session


# -- one session, its lock held --------------------------------------------------------------

cdef SessionPartition* session_get(Session* session, const FetchTarget* target) noexcept nogil:
    cdef uint32_t hash = target_hash(target)
    cdef SessionPartition* partition = session.buckets[hash & session.mask]
    while partition != NULL and not (partition.hash == hash
                                     and same_target(&partition.target, target)):
        partition = partition.chain
    return partition


cdef void grow_buckets(Session* session) noexcept nogil:
    cdef uint32_t mask = session.mask * 2 + 1
    cdef SessionPartition** buckets
    cdef SessionPartition* partition
    buckets = <SessionPartition**>calloc(<size_t>mask + 1, sizeof(void*))
    if buckets == NULL:
        return                      # longer chains, nothing worse
    partition = session.order.next
    while partition != &session.order:
        partition.chain = buckets[partition.hash & mask]
        buckets[partition.hash & mask] = partition
        partition = partition.next
    free(session.buckets)
    session.buckets = buckets
    session.mask = mask


cdef void append_in_order(Session* session, SessionPartition* partition) noexcept nogil:
    partition.previous = session.order.previous
    partition.next = &session.order
    session.order.previous.next = partition
    session.order.previous = partition


cdef void take_from_order(SessionPartition* partition) noexcept nogil:
    partition.previous.next = partition.next
    partition.next.previous = partition.previous


cdef void session_to_the_end(Session* session, SessionPartition* partition) noexcept nogil:
    """What just had its turn comes last in the next one, so that none starves."""
    take_from_order(partition)
    append_in_order(session, partition)


cdef inline size_t partition_bytes(const FetchTarget* target) noexcept nogil:
    return sizeof(SessionPartition) + (<size_t>target.name_length if target.name != NULL else 0)


cdef void uncount(Session* session, const FetchTarget* target) noexcept nogil:
    atomic_add_i64(&session.cache.bytes,
                   -<int64_t>(partition_bytes(target) + ALLOCATION_BYTES))


cdef void partition_free(Session* session, SessionPartition* partition) noexcept nogil:
    uncount(session, &partition.target)
    free(partition)


cdef SessionPartition* partition_new(Session* session, const FetchTarget* target) noexcept nogil:
    cdef size_t bytes = partition_bytes(target)
    cdef SessionPartition* partition = NULL
    if atomic_add_i64(&session.cache.bytes, bytes + ALLOCATION_BYTES) <= SESSIONS_BYTES_MAX:
        partition = <SessionPartition*>malloc(bytes)
    if partition == NULL:
        uncount(session, target)
        return NULL
    partition.target = target[0]
    if target.name != NULL:
        memcpy(<uint8_t*>partition + sizeof(SessionPartition), target.name,
               <size_t>target.name_length)
        partition.target.name = <uint8_t*>partition + sizeof(SessionPartition)
    partition.hash = target_hash(target)
    partition.high_watermark = -1
    partition.log_start = -1
    return partition


cdef SessionPartition* session_put(Session* session, const FetchTarget* target) noexcept nogil:
    """Add the partition, or take over what the request changed of it."""
    cdef SessionPartition* partition = session_get(session, target)
    if partition != NULL:
        partition.target.offset = target.offset
        partition.target.bytes_max = target.bytes_max
        partition.target.current_leader_epoch = target.current_leader_epoch
        partition.target.last_fetched_epoch = target.last_fetched_epoch
        return partition
    if session.count < REQUEST_PARTITIONS_MAX:
        partition = partition_new(session, target)
    if partition == NULL:
        return NULL
    if session.count > session.mask:
        grow_buckets(session)
    partition.chain = session.buckets[partition.hash & session.mask]
    session.buckets[partition.hash & session.mask] = partition
    append_in_order(session, partition)
    session.count += 1
    return partition


cdef void session_forget(Session* session, const FetchTarget* target) noexcept nogil:
    cdef SessionPartition* partition = session_get(session, target)
    cdef SessionPartition** link
    if partition == NULL:
        return
    link = &session.buckets[partition.hash & session.mask]
    while link[0] != partition:
        link = &link[0].chain
    link[0] = partition.chain
    take_from_order(partition)
    session.count -= 1
    session.generation += 1
    partition_free(session, partition)
