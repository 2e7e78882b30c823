"""What a consumer fetches (see client_fetch_state.pxd)."""
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from kbroker.ext.client_stream cimport stream_close
from kbroker.ext.debug cimport OBJECT_FETCH_CHUNK, object_born, object_died
from kbroker.ext.posix cimport (
    close, pthread_cond_broadcast, pthread_cond_destroy, pthread_mutex_destroy,
    pthread_mutex_init, write,
)
from kbroker.ext.sockets cimport cond_init_monotonic


cdef Fetch* fetch_new(const FetchRules* rules) noexcept nogil:
    cdef Fetch* f = <Fetch*> calloc(1, sizeof(Fetch))
    if f != NULL:
        f.rules = rules[0]
        f.signal_fd = -1
        pthread_mutex_init(&f.lock, NULL)
        cond_init_monotonic(&f.arrived)
    return f


cdef void fetch_free(Fetch* f) noexcept nogil:
    cdef int i
    cdef Topic* topic
    if f == NULL:
        return
    while f.topics != NULL:
        topic = f.topics
        while topic.parts != NULL:
            part_remove(f, topic.parts)
        f.topics = topic.next
        free(topic)
    while f.first != NULL:
        chunk_remove(f, f.first)
    for i in range(SESSIONS_MAX):
        if f.sessions[i] != NULL:
            free(f.sessions[i].memory)
            free(f.sessions[i])
    if f.signal_fd >= 0:
        close(f.signal_fd)
    pthread_mutex_destroy(&f.lock)
    pthread_cond_destroy(&f.arrived)
    free(f)


cdef Topic* topic_find(Fetch* f, const uint8_t* name, int32_t n) noexcept nogil:
    cdef Topic* topic = f.topics
    while topic != NULL and (topic.name_n != n or memcmp(topic.name, name, n) != 0):
        topic = topic.next
    return topic


cdef Part* part_add(Fetch* f, Topic* topic, int32_t partition) noexcept nogil:
    cdef Part* part = <Part*> calloc(1, sizeof(Part))
    if part == NULL:
        return NULL
    part.topic = topic
    part.partition = partition
    part.link = part.node = part.epoch = part.told_link = part.flight_link = -1
    part.position_epoch = part.offset_epoch = part.hint_node = part.hint_epoch = -1
    part.offset = part.position = -1
    part.high_watermark = part.last_stable_offset = part.log_start_offset = -1
    part.stop_at = INT64_MAX
    part.next = topic.parts
    topic.parts = part
    topic.parts_count += 1
    f.parts_count += 1
    return part


cdef void part_remove(Fetch* f, Part* part) noexcept nogil:
    cdef Part** at = &part.topic.parts
    cdef Session* s = f.sessions[part.told_link % SESSIONS_MAX] if part.told_link >= 0 else NULL
    if s != NULL and s.link == part.told_link:
        s.renew = True
    part_reset(f, part, -1, -1)
    while at[0] != part:
        at = &at[0].next
    at[0] = part.next
    part.topic.hint = NULL
    part.topic.parts_count -= 1
    f.parts_count -= 1
    free(part)


cdef void part_take(
    Fetch* f, Part* part, int64_t position, int32_t epoch, int64_t generation
) noexcept nogil:
    if not part.taken:
        part.taken = True
        part.taken_next = f.taken
        f.taken = part
    part.taken_position = position
    part.taken_epoch = epoch
    part.taken_generation = generation


cdef void taken_return(Fetch* f) noexcept nogil:
    cdef Part* part = f.taken
    while part != NULL:
        part.call = f.calls
        part.call_position = part.position
        part.call_epoch = part.position_epoch
        part.position = part.taken_position
        part.position_epoch = part.taken_epoch
        part.taken = False
        part = part.taken_next
    f.taken = NULL
    f.taken_lost = False


cdef bint taken_sound(const Fetch* f) noexcept nogil:
    cdef const Part* part = f.taken
    if f.taken_lost:
        return False
    while part != NULL:
        if part.paused or part.stopped or part.taken_generation < part.sound_from:
            return False
        part = part.taken_next
    return True


cdef void part_untake(Fetch* f, Part* part) noexcept nogil:
    """Its position stays where it is: records that were taken are not returned."""
    cdef Part** at = &f.taken
    if not part.taken:
        return
    while at[0] != part:
        at = &at[0].taken_next
    at[0] = part.taken_next
    part.taken = False
    f.taken_lost = True


cdef void part_reset(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil:
    cdef Chunk* chunk = f.first
    cdef Chunk* next
    part_untake(f, part)
    part.generation += 1
    part.call = 0
    part.offset = part.position = offset
    part.offset_epoch = part.position_epoch = epoch
    part.faulted = False
    if part.attention > 0 or part.attention == ATTEND_POSITION:
        part.attention = 0
    while chunk != NULL:
        next = chunk.next
        if chunk.part == part:
            chunk_remove(f, chunk)
        chunk = next


cdef void part_move(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil:
    part.generation += 1
    part.offset = offset
    part.offset_epoch = epoch
    if part.queued == 0 and part.taken:
        part.taken_position = offset
        part.taken_epoch = epoch
    elif part.queued == 0:
        part.position = offset
        part.position_epoch = epoch


cdef void part_truncate(Fetch* f, Part* part, int64_t offset, int32_t epoch) noexcept nogil:
    cdef bint queued = part.queued > 0 or part.taken
    part_move(f, part, offset, epoch)
    if queued:                          # the polling thread alone drops chunks and taken records
        part.sound_from = part.generation
        part.truncated_to = offset
        fetch_signal(f)


cdef void part_attend(
    Fetch* f, Part* part, int32_t why, int32_t node, int32_t epoch
) noexcept nogil:
    part.attention = why
    part.attended = False
    part.hint_node = node
    part.hint_epoch = epoch
    f.attention = True
    f.untold = True


cdef void topic_identify(Fetch* f, Part* by, const uint8_t* topic_id) noexcept nogil:
    cdef Topic* topic = by.topic
    cdef Part* part = topic.parts
    cdef bint another = topic.has_id and memcmp(topic.id, topic_id, TOPIC_ID_BYTES) != 0
    cdef int i
    memcpy(topic.id, topic_id, TOPIC_ID_BYTES)
    topic.has_id = True
    if not another:
        return
    for i in range(SESSIONS_MAX):
        if f.sessions[i] != NULL:
            f.sessions[i].renew = True
    while part != NULL:
        if part != by and part.attention == 0:
            part_attend(f, part, ATTEND_LEADER, -1, -1)
        part = part.next


cdef bint part_readable(const Part* part) noexcept nogil:
    return (
        0 <= part.offset < part.stop_at and part.link >= 0 and not part.paused and not part.stopped
        and not part.faulted and part.attention == 0
    )


cdef bint part_full(const Fetch* f, const Part* part) noexcept nogil:
    """One of many gets its share of the queue; who has nothing queued may always ask."""
    return part.queued > 0 and part.queued >= f.rules.queue_bytes // f.parts_count


cdef int32_t fetch_share(const Fetch* f) noexcept nogil:
    """Of what the queue has left, as much as the other links that are to be asked get. Where that
    is little it waits for more: many small answers cost more than they bring."""
    cdef int64_t taken = f.queued + f.asked
    cdef int64_t least = max(f.rules.queue_bytes // (4 * (f.flying + f.askers + 1)), 1)
    cdef int64_t left
    cdef Part* part
    if taken + least > f.rules.queue_bytes:
        part = first_part(f.topics)
        while part != NULL:
            if part.paused or part.stopped:
                taken -= part.queued
            part = next_part(part)
    left = f.rules.queue_bytes - taken
    if left < least:
        return -1
    return <int32_t> min(<int64_t> f.rules.max_bytes, max(left // (f.askers + 1), least))


cdef void chunk_append(Fetch* f, Part* part, Chunk* chunk) noexcept nogil:
    object_born(OBJECT_FETCH_CHUNK)
    chunk.part = part
    chunk.generation = part.generation
    chunk.next = NULL
    if f.last == NULL:
        f.first = chunk
    else:
        f.last.next = chunk
    f.last = chunk
    part.queued += chunk.bytes
    f.queued += chunk.bytes


cdef void chunk_remove(Fetch* f, Chunk* chunk) noexcept nogil:
    cdef Chunk* before = NULL
    cdef Chunk* at = f.first
    while at != chunk:
        before = at
        at = at.next
    if before == NULL:
        f.first = chunk.next
    else:
        before.next = chunk.next
    if f.last == chunk:
        f.last = before
    f.queued -= chunk.bytes
    chunk.part.queued -= chunk.bytes
    stream_close(&chunk.stream)
    free(chunk)
    object_died(OBJECT_FETCH_CHUNK)


cdef void fetch_signal(Fetch* f) noexcept nogil:
    cdef uint64_t one = 1
    pthread_cond_broadcast(&f.arrived)
    if f.watched and f.signal_fd >= 0:
        f.watched = False
        write(f.signal_fd, &one, sizeof(one))
