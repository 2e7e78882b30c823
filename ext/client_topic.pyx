"""Topics and partitions of a producer (see client_topic.pxd)."""
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_fence, atomic_load_relaxed_i32
from kbroker.ext.posix cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)


cdef Topic* topic_new(const uint8_t* name, int32_t n) noexcept nogil:
    cdef Topic* t = <Topic*> calloc(1, sizeof(Topic))
    if t == NULL:
        return NULL
    t.name = <uint8_t*> malloc(n + 1)
    if t.name == NULL:
        free(t)
        return NULL
    memcpy(t.name, name, n)
    t.name_bytes = n
    t.sticky = -1
    t.ratio_milli = 1000
    pthread_mutex_init(&t.lock, NULL)
    return t


cdef void parts_free(Part** parts, int32_t count) noexcept nogil:
    cdef int32_t i
    for i in range(count):
        pthread_mutex_destroy(&parts[i].lock)
        free(parts[i])


cdef void topic_free(Topic* t) noexcept nogil:
    cdef void** old
    parts_free(t.parts, t.count)
    while t.retired != NULL:
        old = <void**> t.retired
        t.retired = old[0]
        free(old)
    pthread_mutex_destroy(&t.lock)
    if t.parts != NULL:
        free(<void**> t.parts - 1)
    free(t.loads)
    free(t.loads_ids)
    free(t.name)
    free(t)


cdef Part* part_new(Topic* t, int32_t index) noexcept nogil:
    cdef Part* part = <Part*> calloc(1, sizeof(Part))
    if part == NULL:
        return NULL
    pthread_mutex_init(&part.lock, NULL)
    part.topic = t
    part.index = index
    part.leader = part.leader_epoch = -1
    part.producer_id = part.known_producer_id = -1
    part.producer_epoch = -1
    part.last_acked_sequence = -1
    part.last_acked_offset = -1
    part.unresolved_sequence = -1
    return part


cdef bint topic_grow(Topic* t, int32_t count) noexcept nogil:
    """Arrays have a word in front, which links those that were replaced: somebody may still read
    the old one, whose partitions are the same."""
    cdef void** grown
    cdef Part** parts
    cdef int32_t i
    if count <= t.count:
        return True
    grown = <void**> calloc(<size_t> count + 1, sizeof(void*))
    if grown == NULL:
        return False
    parts = <Part**> (grown + 1)
    for i in range(t.count):
        parts[i] = t.parts[i]
    for i in range(t.count, count):
        parts[i] = part_new(t, i)
        if parts[i] == NULL:
            parts_free(parts + t.count, i - t.count)
            free(grown)
            return False
    pthread_mutex_lock(&t.lock)
    if t.parts != NULL:
        (<void**> t.parts - 1)[0] = t.retired
        t.retired = <void**> t.parts - 1
    t.parts = parts
    atomic_fence()
    t.count = count
    t.loads_count = 0
    pthread_mutex_unlock(&t.lock)
    return True


cdef uint32_t chance_of(uint64_t* state) noexcept nogil:
    cdef uint64_t x = state[0]
    x ^= x >> 12
    x ^= x << 25
    x ^= x >> 27
    state[0] = x if x else 1
    return <uint32_t> (x * <uint64_t> 0x2545F4914F6CDD1D >> 33)


cdef int32_t choose_locked(Topic* t, uint64_t* chances) noexcept nogil:
    """The next sticky partition: by load where that is known, else any with a leader."""
    cdef uint32_t chance = chance_of(chances)
    cdef int64_t weight
    cdef int32_t low = 0
    cdef int32_t high
    cdef int32_t i, middle
    if t.loads_count > 0:
        weight = chance % t.loads[t.loads_count - 1]
        high = t.loads_count - 1
        while low < high:
            middle = (low + high) // 2
            if t.loads[middle] > weight:
                high = middle
            else:
                low = middle + 1
        return t.loads_ids[low]
    for i in range(t.count):
        low = <int32_t> ((chance + <uint32_t> i) % <uint32_t> t.count)
        if atomic_load_relaxed_i32(&t.parts[low].leader) >= 0:
            if i == 0:
                return low
            # Not merely the next one, or those behind partitions without a leader get more.
            return available_locked(t, chances)
    return low


cdef int32_t available_locked(Topic* t, uint64_t* chances) noexcept nogil:
    cdef int32_t count = 0
    cdef int32_t i, wanted
    for i in range(t.count):
        count += atomic_load_relaxed_i32(&t.parts[i].leader) >= 0
    wanted = <int32_t> (chance_of(chances) % <uint32_t> (count if count else 1))
    for i in range(t.count):
        if atomic_load_relaxed_i32(&t.parts[i].leader) >= 0:
            if wanted == 0:
                return i
            wanted -= 1
    return 0


cdef int32_t sticky_of(Topic* t, uint64_t* chances) noexcept nogil:
    pthread_mutex_lock(&t.lock)
    if t.sticky < 0:
        t.sticky = choose_locked(t, chances)
        t.produced = 0
    cdef int32_t sticky = t.sticky
    pthread_mutex_unlock(&t.lock)
    return sticky


cdef bint sticky_moves(
    Topic* t, int32_t from_partition, int64_t at_least, uint64_t* chances
) noexcept nogil:
    cdef bint moved
    if t.produced < at_least and t.sticky == from_partition:
        return False
    pthread_mutex_lock(&t.lock)
    moved = t.sticky != from_partition
    if not moved and t.produced >= at_least:
        t.sticky = choose_locked(t, chances)
        t.produced = 0
        moved = True
    pthread_mutex_unlock(&t.lock)
    return moved


cdef void topic_loads(
    Topic* t, int64_t* lengths, const int32_t* ids, int32_t count, int32_t all_count
) noexcept nogil:
    cdef int64_t most = 0
    cdef bint equal = True
    cdef int64_t sum_ = 0
    cdef int32_t i
    cdef void* room
    for i in range(count):
        most = max(most, lengths[i])
        equal = equal and lengths[i] == lengths[0]
    pthread_mutex_lock(&t.lock)
    if count < 1 or all_count < 2 or (equal and count == all_count):
        t.loads_count = 0
    else:
        if t.loads_room < count:
            free(t.loads)
            free(t.loads_ids)
            t.loads = <int64_t*> malloc(sizeof(int64_t) * all_count)
            t.loads_ids = <int32_t*> malloc(sizeof(int32_t) * all_count)
            room = t.loads if t.loads_ids != NULL else NULL
            t.loads_room = all_count if room != NULL else 0
        t.loads_count = count if t.loads_room >= count else 0
        for i in range(t.loads_count):
            sum_ += most + 1 - lengths[i]
            t.loads[i] = sum_
            t.loads_ids[i] = ids[i]
    pthread_mutex_unlock(&t.lock)
