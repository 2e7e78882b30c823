"""Fetch as a consumer speaks it (see client_fetch_wire.pxd)."""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.client_fetch_state cimport (
    FETCH_BY_NAME_HIGH, TOPIC_ID_BYTES, Fetch, Part, Session, Topic,
)
from kbroker.ext.wire cimport (
    Cursor, Slice, Writer, array_count, cursor_fail, get_compact_string, get_count, get_i16,
    get_i32, get_i64, get_span, get_string, get_tag_count, get_uuid, get_uvarint,
    put_compact_string, put_count, put_i8, put_i32, put_i64, put_no_tags, put_raw, put_string,
    skip, skip_tags, writer_init,
)

cdef enum:
    FLEXIBLE = 12
    BY_ID = FETCH_BY_NAME_HIGH + 1
    HEAD_BYTES = 64                     # all but topics and rack, at most
    TOPIC_BYTES = 16
    PART_BYTES = 40
    PART_BYTES_MIN = 4 + 2 + 8 + 8      # of an answer


cdef int64_t fetch_body_bytes(const Fetch* f) noexcept nogil:
    cdef int64_t bytes = HEAD_BYTES + f.rules.rack_n
    cdef Topic* topic = f.topics
    while topic != NULL:
        bytes += 2 * (TOPIC_BYTES + max(topic.name_n, <int32_t> TOPIC_ID_BYTES))
        bytes += <int64_t> topic.parts_count * PART_BYTES
        topic = topic.next
    return bytes


# ---- request

cdef inline bint is_told(const Session* s, const Part* part) noexcept nogil:
    """Whether the broker's session has it as it is."""
    return (
        part.told_link == s.link and part.told_offset == part.offset
        and part.told_epoch == part.epoch
    )


cdef inline bint is_new(const Session* s, const Part* part) noexcept nogil:
    return part.wanted and not is_told(s, part)


cdef inline bint is_gone(const Session* s, const Part* part) noexcept nogil:
    return not part.wanted and part.told_link == s.link


cdef void put_topic(Writer* w, int16_t version, const Topic* topic, int32_t count) noexcept nogil:
    if version >= BY_ID:
        put_raw(w, topic.id, TOPIC_ID_BYTES)
    elif version >= FLEXIBLE:
        put_compact_string(w, topic.name, topic.name_n)
    else:
        put_string(w, topic.name, topic.name_n)
    put_count(w, version >= FLEXIBLE, count)


cdef void put_part(Writer* w, const Fetch* f, int16_t version, const Part* part) noexcept nogil:
    put_i32(w, part.partition)
    if version >= 9:
        put_i32(w, part.epoch)
    put_i64(w, part.offset)
    if version >= 12:
        put_i32(w, -1)                  # last fetched epoch: the control thread asks for it
    if version >= 5:
        put_i64(w, -1)                  # log start offset: of followers
    put_i32(w, f.rules.partition_bytes)
    if version >= FLEXIBLE:
        put_no_tags(w)


cdef int32_t count_parts(const Session* s, const Topic* topic, bint gone) noexcept nogil:
    cdef Part* part = topic.parts
    cdef int32_t count = 0
    while part != NULL:
        count += is_gone(s, part) if gone else is_new(s, part)
        part = part.next
    return count


cdef void put_topics(Fetch* f, Session* s, Writer* w, bint gone) noexcept nogil:
    """Those with something new, or those with something to be forgotten."""
    cdef Topic* topic = f.topics
    cdef Part* part
    cdef int32_t count = 0
    while topic != NULL:
        count += count_parts(s, topic, gone) > 0
        topic = topic.next
    put_count(w, s.version >= FLEXIBLE, count)
    topic = f.topics
    while topic != NULL:
        count = count_parts(s, topic, gone)
        if count:
            put_topic(w, s.version, topic, count)
            part = topic.parts
            while part != NULL:
                if gone and is_gone(s, part):
                    put_i32(w, part.partition)
                    part.told_link = -1
                elif not gone and is_new(s, part):
                    put_part(w, f, s.version, part)
                    part.told_link = s.link
                    part.told_offset = part.offset
                    part.told_epoch = part.epoch
                part = part.next
            if s.version >= FLEXIBLE:
                put_no_tags(w)
        topic = topic.next


cdef uint8_t* put_fetch(Fetch* f, Session* s, uint8_t* p, uint8_t* end) noexcept nogil:
    cdef Writer w
    writer_init(&w, p, end - p)
    if s.version < 15:
        put_i32(&w, -1)                 # no replica
    put_i32(&w, f.rules.max_wait_ms)
    put_i32(&w, min(f.rules.min_bytes, s.asked))
    put_i32(&w, s.asked)
    put_i8(&w, 1 if f.rules.stream.read_committed else 0)
    if s.version >= 7:
        put_i32(&w, s.session_id)
        put_i32(&w, s.epoch)
    put_topics(f, s, &w, False)
    if s.version >= 7:
        put_topics(f, s, &w, True)
    if s.version >= FLEXIBLE:
        put_compact_string(&w, f.rules.rack, f.rules.rack_n)
        put_no_tags(&w)
    elif s.version >= 11:
        put_string(&w, f.rules.rack, f.rules.rack_n)
    return w.p if not w.full else NULL


# ---- answer

cdef void get_head(Cursor* c, int16_t version, FetchHead* out) noexcept nogil:
    out.throttle_ms = get_i32(c)
    out.error = get_i16(c) if version >= 7 else 0
    out.session_id = get_i32(c) if version >= 7 else 0
    out.topics = get_count(c, version >= FLEXIBLE, 5)


cdef void get_topic(
    Cursor* c, int16_t version, Slice* name, const uint8_t** topic_id, int32_t* partitions
) noexcept nogil:
    topic_id[0] = NULL
    name.p = NULL
    name.n = 0
    if version >= BY_ID:
        topic_id[0] = get_uuid(c)
    elif version >= FLEXIBLE:
        name[0] = get_compact_string(c)
    else:
        name[0] = get_string(c)
    partitions[0] = get_count(c, version >= FLEXIBLE, PART_BYTES_MIN)


cdef void get_aborted(Cursor* c, int16_t version, FetchPart* out) noexcept nogil:
    """Each is two int64 and, where flexible, no tagged field: then they are a stride apart."""
    out.aborted_bytes = 17 if version >= FLEXIBLE else 16
    out.aborted_count = array_count(
        c, <int64_t> get_uvarint(c) - 1 if version >= FLEXIBLE else get_i32(c),
        out.aborted_bytes, True,
    )
    out.aborted = c.p
    for _ in range(out.aborted_count):
        if version >= FLEXIBLE and not c.bad and c.p[16] != 0:
            cursor_fail(c)
        skip(c, out.aborted_bytes)


cdef void get_leader(Cursor* c, FetchPart* out) noexcept nogil:
    out.leader = get_i32(c)
    out.leader_epoch = get_i32(c)
    skip_tags(c)


cdef void get_tags(Cursor* c, FetchPart* out) noexcept nogil:
    cdef uint32_t count = get_tag_count(c)
    cdef uint32_t tag
    cdef uint32_t size
    cdef Cursor inner
    for _ in range(count):
        tag = get_uvarint(c)
        size = get_uvarint(c)
        inner = c[0]
        skip(c, size)
        if tag == 1 and not c.bad:
            inner.end = c.p
            get_leader(&inner, out)
            if inner.bad:
                cursor_fail(c)


cdef int64_t get_part_front(Cursor* c, int16_t version, FetchPart* out) noexcept nogil:
    out.leader = out.leader_epoch = -1
    out.partition = get_i32(c)
    out.error = get_i16(c)
    out.high_watermark = get_i64(c)
    out.last_stable_offset = get_i64(c)
    out.log_start_offset = get_i64(c) if version >= 5 else -1
    get_aborted(c, version, out)
    out.preferred_replica = get_i32(c) if version >= 11 else -1
    return <int64_t> get_uvarint(c) - 1 if version >= FLEXIBLE else get_i32(c)


cdef void get_part(Cursor* c, int16_t version, FetchPart* out) noexcept nogil:
    out.records = get_span(c, get_part_front(c, version, out), 0x7FFFFFFF, True)
    if version >= FLEXIBLE:
        get_tags(c, out)
