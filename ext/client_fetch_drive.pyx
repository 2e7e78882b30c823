"""The fetcher on its loop (see client_fetch_drive.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport INT32_MAX, INT64_MAX, int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memset

from kbroker.ext.batch cimport BATCH_OK, BatchInfo, batch_parse
from kbroker.ext.client_counted cimport Memory, memory_make, memory_unref
from kbroker.ext.client_fetch_scan cimport scan_more
from kbroker.ext.client_fetch_state cimport (
    ATTEND_CORRUPT, ATTEND_LEADER, ATTEND_REPLICA, FETCH_BY_NAME_HIGH, FETCH_HIGH, FETCH_KEY,
    FETCH_LOW, SESSIONS_MAX, TOPIC_ID_BYTES, Chunk, Fetch, Part, Session, Topic, chunk_append,
    fetch_share, fetch_signal, first_part, next_part, part_attend, part_full, part_readable,
    topic_find,
)
from kbroker.ext.client_fetch_wire cimport (
    FetchHead, FetchPart, fetch_body_bytes, get_head, get_part, get_topic, put_fetch,
)
from kbroker.ext.client_link cimport (
    LINK_HEAD_BYTES_MAX, LINK_OK, Call, Kept, Loop, kept_free, link_find, link_keep,
    link_put_header, link_submit, link_version,
)
from kbroker.ext.client_stream cimport stream_open
from kbroker.ext.client_thread cimport loop_post_event
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.wire cimport Cursor, Slice, Writer, cursor_init, skip_tags, writer_init

cdef enum:
    UNTOLD_NS = 10_000_000              # an event that found no room is posted again so much later
    LONG_NS = 1_000_000_000
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71


# ---- sessions

cdef void session_end(Fetch* f, Session* s) noexcept nogil:
    """The broker's is not ours any more."""
    s.session_id = 0
    session_renew(f, s)


cdef void session_renew(Fetch* f, Session* s) noexcept nogil:
    """The next request names every partition, and begins a session in the place of this one."""
    cdef Part* part = first_part(f.topics)
    s.epoch = 0
    s.renew = False
    while part != NULL:
        if part.told_link == s.link:
            part.told_link = -1
        part = next_part(part)


cdef void session_landed(Fetch* f, Session* s) noexcept nogil:
    """Nothing of it is in flight any more."""
    cdef Part* part = first_part(f.topics)
    if s.in_flight:
        f.flying -= 1
        f.asked -= s.asked
    s.in_flight = False
    while part != NULL:
        if part.flight_link == s.link:
            part.flight_link = -1
        part = next_part(part)


cdef Session* session_of(Fetch* f, int32_t link) noexcept nogil:
    """NULL: no memory, or the place is taken by a link whose answer is due."""
    cdef Session* s = f.sessions[link % SESSIONS_MAX]
    if s == NULL:
        s = <Session*> calloc(1, sizeof(Session))
        if s == NULL:
            return NULL
        s.fetch = f
        s.link = -1
        f.sessions[link % SESSIONS_MAX] = s
    if s.link != link:
        if s.in_flight:
            return NULL
        s.link = link
        s.version = -1
        s.not_before_ns = 0
        session_end(f, s)
    return s


cdef void parts_leave(Fetch* f, int32_t link) noexcept nogil:
    """The link is no more: who was read from it waits for the control thread to give another."""
    cdef Part* part = first_part(f.topics)
    while part != NULL:
        if part.link == link:
            part.link = -1
            if part.attention == 0:
                part_attend(f, part, ATTEND_LEADER, -1, -1)
        part = next_part(part)


cdef void fetch_link_down(void* self, int32_t link, int code) noexcept nogil:
    cdef Fetch* f = <Fetch*> self
    cdef Session* s = f.sessions[link % SESSIONS_MAX]
    pthread_mutex_lock(&f.lock)
    if s != NULL and s.link == link:
        session_end(f, s)
        session_landed(f, s)
    parts_leave(f, link)
    pthread_mutex_unlock(&f.lock)


cdef void fetch_stopped(void* self) noexcept nogil:
    cdef Fetch* f = <Fetch*> self
    pthread_mutex_lock(&f.lock)
    f.closed = True
    fetch_signal(f)
    pthread_mutex_unlock(&f.lock)


# ---- requests

cdef int16_t version_for(Fetch* f, int32_t link) noexcept nogil:
    """Ids only where every topic that is asked for has one."""
    cdef Part* part = first_part(f.topics)
    cdef int16_t high = FETCH_HIGH
    while part != NULL:
        if not part.topic.has_id and (part.link == link or part.told_link == link):
            high = FETCH_BY_NAME_HIGH
        part = next_part(part)
    return link_version(f.driver.loop, link, FETCH_KEY, FETCH_LOW, high)


cdef int32_t mark_wanted(Fetch* f, int32_t link) noexcept nogil:
    """How many; none while one of them is full. A request without it would wait for the others'
    records, up to fetch.max.wait.ms, and leave the full one empty meanwhile (KAFKA-17182)."""
    cdef Part* part = first_part(f.topics)
    cdef int32_t wanted = 0
    while part != NULL:
        part.wanted = part.link == link and part_readable(part)
        if part.wanted and part_full(f, part):
            return 0
        wanted += part.wanted
        part = next_part(part)
    return wanted


cdef void mark_flying(Fetch* f, Session* s) noexcept nogil:
    cdef Part* part = first_part(f.topics)
    while part != NULL:
        if part.wanted:
            part.flight_link = s.link
            part.flight_generation = part.generation
            part.flight_offset = part.offset
        part = next_part(part)


cdef bint make_request(Fetch* f, Session* s, int64_t now_ns) noexcept nogil:
    """The parts `wanted` of its link."""
    cdef int64_t bytes = LINK_HEAD_BYTES_MAX + fetch_body_bytes(f)
    cdef Call* call = &s.call
    cdef Writer w
    cdef uint8_t* end
    if bytes > s.room:
        free(s.memory)
        s.memory = <uint8_t*> malloc(bytes)
        s.room = bytes if s.memory != NULL else 0
        if s.memory == NULL:
            return False
    call.pieces = &s.piece
    call.piece_count = 1
    call.api_key = FETCH_KEY
    call.api_version = s.version
    call.flexible = s.version >= 12
    call.answered = True
    call.arriving = NULL
    if f.rules.stream.check_crcs:
        call.arriving = arriving
    memset(&s.scan, 0, sizeof(s.scan))
    call.deadline_ns = now_ns + f.rules.request_timeout_ns
    call.done = answered
    writer_init(&w, s.memory, s.room)
    link_put_header(f.driver.loop, &w, call)
    end = put_fetch(f, s, w.p, w.end)
    if end == NULL:
        return False
    s.piece.iov_base = s.memory
    s.piece.iov_len = <size_t> (end - s.memory)
    return True


cdef int64_t ask(Fetch* f, int32_t link, int64_t now_ns) noexcept nogil:
    """One request, if one is due: the time to look again."""
    cdef Session* s
    cdef int16_t version
    if link_find(f.driver.loop, link) == NULL:
        # It broke before it was given to the partition, or before anybody told of that.
        parts_leave(f, link)
        return INT64_MAX
    s = session_of(f, link)
    if s == NULL:
        return now_ns + UNTOLD_NS
    if s.in_flight or s.looked == f.turn:
        return INT64_MAX
    s.looked = f.turn
    f.askers -= 1
    if s.not_before_ns > now_ns:
        return s.not_before_ns
    if mark_wanted(f, link) == 0:
        return INT64_MAX
    s.asked = fetch_share(f)
    if s.asked < 0:
        f.held = True
        return INT64_MAX
    version = version_for(f, link)
    if version < 0:
        return INT64_MAX
    if version != s.version or s.session_id == 0 or s.renew:
        session_renew(f, s)
        s.version = version
    if not make_request(f, s, now_ns):
        session_end(f, s)
        return now_ns + LONG_NS
    mark_flying(f, s)
    s.in_flight = True
    f.flying += 1
    f.asked += s.asked
    f.requests += 1
    if link_submit(f.driver.loop, link, &s.call) != LINK_OK:
        session_end(f, s)
        session_landed(f, s)
        parts_leave(f, link)
    return INT64_MAX


cdef void count_askers(Fetch* f) noexcept nogil:
    cdef Part* part = first_part(f.topics)
    cdef Session* s
    f.askers = 0
    while part != NULL:
        if part.flight_link < 0 and part_readable(part):
            s = session_of(f, part.link)
            if s != NULL and not s.in_flight and s.counted != f.turn:
                s.counted = f.turn
                f.askers += 1
        part = next_part(part)


cdef int64_t fetch_drive(void* self, int64_t now_ns) noexcept nogil:
    cdef Fetch* f = <Fetch*> self
    cdef Part* part = NULL
    cdef int64_t next_ns = INT64_MAX
    pthread_mutex_lock(&f.lock)
    f.turn += 1
    f.held = False
    if not f.corked:
        count_askers(f)
        part = first_part(f.topics)
    while part != NULL:
        if part.flight_link < 0 and part_readable(part):
            next_ns = min(next_ns, ask(f, part.link, now_ns))
        part = next_part(part)
    if f.untold:
        f.untold = loop_post_event(f.driver.loop, EVENT_FETCH, -1, -1, 0, NULL) != 0
        if f.untold:
            next_ns = min(next_ns, now_ns + UNTOLD_NS)
    pthread_mutex_unlock(&f.lock)
    return next_ns


# ---- answers

cdef void give_back(Memory* memory) noexcept nogil:
    kept_free(<Kept*> memory.owner)
    free(memory.owner)


cdef Memory* keep_answer(Loop* loop) noexcept nogil:
    """The answer's memory with its bytes; NULL: no memory."""
    cdef Kept* kept = <Kept*> calloc(1, sizeof(Kept))
    cdef Memory* memory
    if kept == NULL or not link_keep(loop, kept):
        free(kept)
        return NULL
    memory = memory_make(<uint8_t*> kept.p, kept.n, kept, give_back)
    if memory == NULL:
        kept_free(kept)
        free(kept)
    return memory


cdef int64_t behind(
    const uint8_t* p, const uint8_t* end, int64_t offset, int32_t* epoch, bint* sound
) noexcept nogil:
    """The offset behind the last whole batch, and its epoch; sound: there is one, and none that
    is none."""
    cdef BatchInfo info
    cdef int64_t next = offset
    sound[0] = False
    while batch_parse(p, end, &info) == BATCH_OK:
        if info.base_offset < 0 or info.last_offset_delta < 0 or (
            info.base_offset > INT64_MAX - INT32_MAX - 1
        ):
            sound[0] = False
            return next
        next = max(next, info.base_offset + info.last_offset_delta + 1)
        epoch[0] = info.leader_epoch
        p += info.length
        sound[0] = next > offset
        if p == end:
            break
    return next


cdef void take_records(
    Fetch* f, Session* s, Part* part, Memory* frame, const FetchPart* told
) noexcept nogil:
    cdef const uint8_t* end = told.records.p + told.records.n
    cdef Chunk* chunk = <Chunk*> calloc(1, sizeof(Chunk))
    cdef bint sound
    if chunk == NULL or not stream_open(
        &chunk.stream, frame, told.records.p, end, part.offset,
        told.aborted, told.aborted_count, told.aborted_bytes, &f.rules.stream,
    ):
        free(chunk)
        return                          # asked for again
    chunk.stream.sound = s.scan.sound
    chunk.bytes = told.records.n
    part.offset = behind(told.records.p, end, part.offset, &part.offset_epoch, &sound)
    part.faulted = not sound
    f.bytes += told.records.n
    chunk_append(f, part, chunk)
    fetch_signal(f)


cdef void take_part(
    Fetch* f, Session* s, Part* part, Memory* frame, const FetchPart* told
) noexcept nogil:
    part.flight_link = -1
    if part.generation != part.flight_generation or part.offset != part.flight_offset:
        return
    if told.error != 0:
        if part.attention == 0:
            # A broker may keep it in its session and would answer each request at once because of
            # it. So the next request forgets it, or names it again.
            part.told_offset = -1
            part_attend(f, part, told.error, told.leader, told.leader_epoch)
        return
    part.high_watermark = told.high_watermark
    part.last_stable_offset = told.last_stable_offset
    part.log_start_offset = told.log_start_offset
    if told.records.n > 0:
        take_records(f, s, part, frame, told)
    elif told.preferred_replica >= 0 and part.attention == 0 and (
        told.preferred_replica != part.node
    ):
        part_attend(f, part, ATTEND_REPLICA, told.preferred_replica, -1)


cdef Part* find_part(Topic* topic, const Session* s, int32_t partition) noexcept nogil:
    """One whose answer is due. They come in the order in which they were asked for."""
    cdef Part* part = topic.hint.next if topic.hint != NULL else topic.parts
    cdef int32_t left = topic.parts_count
    while left > 0:
        if part == NULL:
            part = topic.parts
        if part.partition == partition:
            topic.hint = part
            return part if part.flight_link == s.link else NULL
        part = part.next
        left -= 1
    return NULL


cdef Topic* find_topic(Fetch* f, const Slice* name, const uint8_t* topic_id) noexcept nogil:
    cdef Topic* topic = f.topics
    if topic_id == NULL:
        return topic_find(f, name.p, name.n)
    while topic != NULL and not (
        topic.has_id and memcmp(topic.id, topic_id, TOPIC_ID_BYTES) == 0
    ):
        topic = topic.next
    return topic


cdef bint take_topics(
    Fetch* f, Session* s, Memory* frame, Cursor* c, int32_t topics
) noexcept nogil:
    """False where the bytes are no answer; what was told before that counts."""
    cdef Slice name
    cdef const uint8_t* topic_id
    cdef int32_t partitions
    cdef FetchPart told
    cdef Topic* topic
    cdef Part* part
    while topics > 0 and not c.bad:
        get_topic(c, s.version, &name, &topic_id, &partitions)
        topic = find_topic(f, &name, topic_id) if not c.bad else NULL
        while partitions > 0 and not c.bad:
            get_part(c, s.version, &told)
            if not c.bad and topic != NULL:
                part = find_part(topic, s, told.partition)
                if part != NULL:
                    take_part(f, s, part, frame, &told)
            partitions -= 1
        if s.version >= 12:
            skip_tags(c)
        topics -= 1
    if s.version >= 12:
        skip_tags(c)
    return not c.bad


cdef void take_answer(Fetch* f, Session* s, Memory* frame) noexcept nogil:
    cdef Cursor c
    cdef FetchHead head
    cdef int64_t now_ns = monotonic_ns()
    cdef bint sound
    cursor_init(&c, frame.p, frame.n)
    get_head(&c, s.version, &head)
    sound = not c.bad
    if sound and head.error == 0:
        sound = take_topics(f, s, frame, &c, head.topics)
    if head.throttle_ms > 0:
        f.throttle_ms = head.throttle_ms
        s.not_before_ns = now_ns + head.throttle_ms * <int64_t> 1000000
    if not sound:
        session_end(f, s)
        s.not_before_ns = now_ns + LONG_NS
        attend_link(f, s.link, ATTEND_CORRUPT)
    elif head.error != 0:
        session_end(f, s)
        if head.error not in (FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH):
            s.not_before_ns = now_ns + f.rules.backoff_ns
    else:
        if head.session_id != s.session_id:
            s.epoch = 0
        s.session_id = head.session_id
        s.epoch = 0 if s.session_id == 0 else (1 if s.epoch == INT32_MAX else s.epoch + 1)


cdef void attend_link(Fetch* f, int32_t link, int32_t why) noexcept nogil:
    cdef Part* part = first_part(f.topics)
    while part != NULL:
        if part.link == link and part.attention == 0:
            part_attend(f, part, why, -1, -1)
        part = next_part(part)


cdef void arriving(Call* call, const uint8_t* frame, uint64_t have) noexcept nogil:
    scan_more(&(<Session*> call).scan, frame, have, call.api_version)


cdef void answered(Call* call, int code, const uint8_t* p, size_t n) noexcept nogil:
    cdef Session* s = <Session*> call
    cdef Fetch* f = s.fetch
    cdef Memory* frame = NULL
    cdef int64_t took_ns
    pthread_mutex_lock(&f.lock)
    if code == LINK_OK:
        took_ns = monotonic_ns() - call.sent_ns
        f.answers += 1
        f.latency_ns_sum += took_ns
        f.latency_ns_max = max(f.latency_ns_max, took_ns)
        frame = keep_answer(f.driver.loop)
        if frame != NULL:
            take_answer(f, s, frame)
        else:
            session_end(f, s)
            s.not_before_ns = monotonic_ns() + LONG_NS
    else:
        session_end(f, s)
    session_landed(f, s)
    pthread_mutex_unlock(&f.lock)
    memory_unref(frame)
