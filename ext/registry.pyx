"""Open addressing over pointers that are published atomically.

A lookup loads the table, then slots; a slot changes from NULL to a topic, from a topic to another
of the same name, or to a tombstone, each by one atomic store, so a reader sees the old or the new
and never half of one. When a table is full (tombstones count) a larger copy replaces it. What was
unlinked is freed after `synchronize`, which waits until every reader's turn has ended.
"""
from libc.errno cimport ENOMEM
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy

from kbroker.ext.atomics cimport atomic_load_ptr, atomic_store_ptr
from kbroker.ext.byte_table cimport bytes_hash, process_seed
from kbroker.ext.endian cimport load_le32
from kbroker.ext.log_space cimport log_disk_bytes
from kbroker.ext.log_state cimport log_ref, log_unref
from kbroker.ext.posix cimport (
    pthread_mutex_destroy,
    pthread_mutex_init,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)

cdef enum:
    SLOTS_FIRST = 64

cdef void* TOMBSTONE = <void*>1


cdef inline uint32_t hash_name(const uint8_t* name, int32_t length) noexcept nogil:
    return bytes_hash(process_seed(), name, <size_t>length)


cdef inline uint32_t hash_id(const uint8_t* topic_id) noexcept nogil:
    # Ids are random, but for those that people write by hand in tests: mix all four words.
    return (load_le32(topic_id) ^ (load_le32(topic_id + 4) * <uint32_t>0x85EBCA6B)
            ^ (load_le32(topic_id + 8) * <uint32_t>0xC2B2AE35)
            ^ (load_le32(topic_id + 12) * <uint32_t>0x27D4EB2F))


# -- readers --------------------------------------------------------------------------------

cdef Topic* registry_by_name(Registry* registry, const uint8_t* name,
                             int32_t length) noexcept nogil:
    cdef TopicTable* table = <TopicTable*>atomic_load_ptr(&registry.table)
    cdef uint32_t hash = hash_name(name, length)
    cdef uint32_t slot = hash & table.mask
    cdef void* found
    while True:
        found = atomic_load_ptr(&table.by_name[slot])
        if found == NULL:
            return NULL
        if found != TOMBSTONE and (<Topic*>found).hash == hash \
                and (<Topic*>found).name_length == length \
                and memcmp((<Topic*>found).name, name, <size_t>length) == 0:
            return <Topic*>found
        slot = (slot + 1) & table.mask


cdef Topic* registry_by_id(Registry* registry, const uint8_t* topic_id) noexcept nogil:
    cdef TopicTable* table = <TopicTable*>atomic_load_ptr(&registry.table)
    cdef uint32_t slot = hash_id(topic_id) & table.mask
    cdef void* found
    while True:
        found = atomic_load_ptr(&table.by_id[slot])
        if found == NULL:
            return NULL
        if found != TOMBSTONE and memcmp((<Topic*>found).id, topic_id, 16) == 0:
            return <Topic*>found
        slot = (slot + 1) & table.mask


# -- topics ---------------------------------------------------------------------------------

cdef Topic* topic_new(const uint8_t* name, int32_t name_length, const uint8_t* topic_id,
                      bint internal, Log** logs, int32_t count) noexcept nogil:
    """One block: the topic, its partitions, its name."""
    cdef size_t partitions_bytes = <size_t>count * sizeof(Log*)
    cdef Topic* topic = <Topic*>malloc(sizeof(Topic) + partitions_bytes + <size_t>name_length)
    cdef int32_t i
    if topic == NULL:
        return NULL
    topic.partitions = <Log**>(<uint8_t*>topic + sizeof(Topic))
    topic.name = <uint8_t*>topic.partitions + partitions_bytes
    memcpy(topic.name, name, <size_t>name_length)
    topic.name_length = name_length
    topic.hash = hash_name(name, name_length)
    memcpy(topic.id, topic_id, 16)
    topic.internal = internal
    topic.partitions_count = count
    for i in range(count):
        topic.partitions[i] = logs[i]
        if logs[i] != NULL:
            log_ref(logs[i])
    return topic


cdef void topic_free(Topic* topic) noexcept nogil:
    cdef int32_t i
    for i in range(topic.partitions_count):
        if topic.partitions[i] != NULL:
            log_unref(topic.partitions[i])
    free(topic)


# -- tables ---------------------------------------------------------------------------------

cdef TopicTable* table_new(uint32_t slots) noexcept nogil:
    cdef TopicTable* table = <TopicTable*>calloc(1, sizeof(TopicTable))
    if table == NULL:
        return NULL
    table.mask = slots - 1
    table.by_name = <void**>calloc(slots, sizeof(void*))
    table.by_id = <void**>calloc(slots, sizeof(void*))
    if table.by_name == NULL or table.by_id == NULL:
        table_free(table)
        return NULL
    return table


cdef void table_free(TopicTable* table) noexcept nogil:
    if table != NULL:
        free(table.by_name)
        free(table.by_id)
        free(table)


cdef void slot_insert(void** slots, uint32_t mask, uint32_t hash, void* topic) noexcept nogil:
    """Into the first slot that was never used: a reader that passes by never loses its way."""
    cdef uint32_t slot = hash & mask
    while atomic_load_ptr(&slots[slot]) != NULL:
        slot = (slot + 1) & mask
    atomic_store_ptr(&slots[slot], topic)


cdef void slot_replace(void** slots, uint32_t mask, uint32_t hash, void* old,
                       void* new) noexcept nogil:
    cdef uint32_t slot = hash & mask
    while atomic_load_ptr(&slots[slot]) != old:
        slot = (slot + 1) & mask
    atomic_store_ptr(&slots[slot], new)


cdef void table_insert(TopicTable* table, Topic* topic) noexcept nogil:
    slot_insert(table.by_name, table.mask, topic.hash, topic)
    slot_insert(table.by_id, table.mask, hash_id(topic.id), topic)
    table.filled += 1


cdef int make_room(Registry* registry) noexcept nogil:
    """Replace a table that is half full by a larger one without tombstones. Return 0 or ENOMEM.

    The old table is retired; the caller reclaims it after it has unlocked the registry.
    """
    cdef TopicTable* old = <TopicTable*>registry.table
    cdef TopicTable* table
    cdef uint32_t slots = SLOTS_FIRST
    cdef uint32_t i
    if (old.filled + 1) * 2 <= old.mask + 1:
        return 0
    while slots < (registry.topics_count + 1) * 4:
        slots *= 2
    table = table_new(slots)
    if table == NULL:
        return ENOMEM
    for i in range(old.mask + 1):
        if old.by_name[i] != NULL and old.by_name[i] != TOMBSTONE:
            table_insert(table, <Topic*>old.by_name[i])
    atomic_store_ptr(&registry.table, table)
    old.next = registry.retired_tables
    registry.retired_tables = old
    return 0


cdef void free_retired(Registry* registry) noexcept nogil:
    cdef Topic* topic
    cdef TopicTable* table
    while registry.retired != NULL:
        topic = registry.retired
        registry.retired = topic.next
        topic_free(topic)
    while registry.retired_tables != NULL:
        table = registry.retired_tables
        registry.retired_tables = table.next
        table_free(table)


cdef void reclaim(Registry* registry) noexcept nogil:
    """What was unlinked goes when no reader can hold it; while one stands in a disk that hangs it
    stays until the next time."""
    if registry.keeps_retired:
        return
    if registry.synchronize == NULL or registry.synchronize(registry.synchronize_argument):
        free_retired(registry)


cdef void registry_reclaim(Registry* registry) noexcept nogil:
    registry.keeps_retired = 0
    if registry.retired != NULL or registry.retired_tables != NULL:
        reclaim(registry)


cdef void retire(Registry* registry, Topic* topic) noexcept nogil:
    topic.next = registry.retired
    registry.retired = topic
    reclaim(registry)


# -- the writer -----------------------------------------------------------------------------

cdef int registry_init(Registry* registry) noexcept nogil:
    registry.table = table_new(SLOTS_FIRST)
    registry.topics_count = 0
    registry.partitions_count = 0
    registry.retired = NULL
    registry.retired_tables = NULL
    registry.keeps_retired = 0
    registry.synchronize = NULL
    registry.synchronize_argument = NULL
    pthread_mutex_init(&registry.lock, NULL)
    return 0 if registry.table != NULL else ENOMEM


cdef void registry_destroy(Registry* registry) noexcept nogil:
    """No reader is left."""
    cdef TopicTable* table = <TopicTable*>registry.table
    cdef uint32_t i
    if table == NULL:
        return
    free_retired(registry)
    for i in range(table.mask + 1):
        if table.by_name[i] != NULL and table.by_name[i] != TOMBSTONE:
            topic_free(<Topic*>table.by_name[i])
    table_free(table)
    registry.table = NULL
    pthread_mutex_destroy(&registry.lock)


cdef void exchange(TopicTable* table, Topic* old, Topic* topic) noexcept nogil:
    slot_replace(table.by_name, table.mask, old.hash, old, topic)
    if memcmp(old.id, topic.id, 16) == 0:
        slot_replace(table.by_id, table.mask, hash_id(old.id), old, topic)
    else:
        slot_replace(table.by_id, table.mask, hash_id(old.id), old, TOMBSTONE)
        slot_insert(table.by_id, table.mask, hash_id(topic.id), topic)
        table.filled += 1


cdef int registry_put(Registry* registry, const uint8_t* name, int32_t name_length,
                      const uint8_t* topic_id, bint internal, Log** logs,
                      int32_t count) noexcept nogil:
    cdef Topic* topic = topic_new(name, name_length, topic_id, internal, logs, count)
    cdef Topic* old
    cdef TopicTable* table
    if topic == NULL:
        return ENOMEM
    pthread_mutex_lock(&registry.lock)
    table = <TopicTable*>registry.table
    if make_room(registry) != 0:
        pthread_mutex_unlock(&registry.lock)
        topic_free(topic)
        return ENOMEM
    old = registry_by_name(registry, name, name_length)
    registry.partitions_count += count
    if old == NULL:
        table_insert(<TopicTable*>registry.table, topic)
        registry.topics_count += 1
    else:
        exchange(<TopicTable*>registry.table, old, topic)
        registry.partitions_count -= old.partitions_count
    pthread_mutex_unlock(&registry.lock)
    if old != NULL:
        retire(registry, old)
    elif registry.table != table:
        reclaim(registry)
    return 0


cdef bint registry_remove(Registry* registry, const uint8_t* name, int32_t length) noexcept nogil:
    """Unlink the topic of that name and drop its references. False: there is none."""
    cdef TopicTable* table
    cdef Topic* topic
    pthread_mutex_lock(&registry.lock)
    table = <TopicTable*>registry.table
    topic = registry_by_name(registry, name, length)
    if topic != NULL:
        slot_replace(table.by_name, table.mask, topic.hash, topic, TOMBSTONE)
        slot_replace(table.by_id, table.mask, hash_id(topic.id), topic, TOMBSTONE)
        registry.topics_count -= 1
        registry.partitions_count -= topic.partitions_count
    pthread_mutex_unlock(&registry.lock)
    if topic == NULL:
        return False
    retire(registry, topic)
    return True


cdef int64_t registry_disk_bytes(Registry* registry, int32_t directory) noexcept nogil:
    cdef TopicTable* table
    cdef Topic* topic
    cdef int64_t bytes = 0
    cdef uint32_t slot
    cdef int32_t i
    pthread_mutex_lock(&registry.lock)
    table = <TopicTable*>registry.table
    for slot in range(table.mask + 1):
        topic = <Topic*>table.by_name[slot]
        if topic == NULL or topic == TOMBSTONE:
            continue
        for i in range(topic.partitions_count):
            if topic.partitions[i] != NULL and topic.partitions[i].directory == directory:
                bytes += log_disk_bytes(topic.partitions[i])
    pthread_mutex_unlock(&registry.lock)
    return bytes
