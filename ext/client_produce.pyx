"""Produce on the client's side (see client_produce.pxd)."""
from libc.stdint cimport uint32_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcmp, memset

from kbroker.ext.client_topic cimport Part, Topic
from kbroker.ext.client_link cimport link_put_header
from kbroker.ext.wire cimport (
    Cursor, Writer, cursor_init, cursor_left, get_compact_nullable_string, get_compact_string,
    get_count, get_i16, get_i32, get_i64, get_nullable_string, get_string, get_tag_count, get_uuid,
    get_uvarint, put_compact_string, put_count, put_i16, put_i32, put_no_tags,
    put_raw, put_string, put_uvarint, skip, skip_tags, writer_init,
)

cdef enum:
    FLEXIBLE = 9
    LOG_START = 5
    RECORD_ERRORS = 8
    LEADER_TAG = 0
    HEAD_BYTES = 64                 # of a request without topics and client id
    TOPIC_BYTES = 32                # besides the name
    PARTITION_BYTES = 16
    ANSWER_BYTES_MIN = 22           # of a partition: index, error, base offset, append time
    FAULT_BYTES_MIN = 5
    TOPIC_BYTES_MIN = 2


cdef ProduceCall* produce_new(int32_t room) noexcept nogil:
    cdef ProduceCall* call = <ProduceCall*> calloc(1, sizeof(ProduceCall))
    if call == NULL:
        return NULL
    call.batches = <ClientBatch**> malloc(sizeof(void*) * room)
    call.answers = <Answer*> malloc(sizeof(Answer) * room)
    call.pieces = <iovec_t*> malloc(sizeof(iovec_t) * (2 * <size_t> room + 1))
    call.room = room
    if call.batches == NULL or call.answers == NULL or call.pieces == NULL:
        produce_free(call)
        return NULL
    return call


cdef void produce_free(ProduceCall* call) noexcept nogil:
    free(call.batches)
    free(call.answers)
    free(call.pieces)
    free(call.head)
    free(call)


# ---- the request

cdef int by_topic(const void* left, const void* right) noexcept nogil:
    cdef Part* a = <Part*> (<ClientBatch**> left)[0].part
    cdef Part* b = <Part*> (<ClientBatch**> right)[0].part
    if a.topic != b.topic:
        return -1 if a.topic < b.topic else 1
    return -1 if a.index < b.index else 1


cdef int32_t run_length(ProduceCall* call, int32_t start) noexcept nogil:
    """How many batches from `start` on are of the same topic."""
    cdef Topic* topic = (<Part*> call.batches[start].part).topic
    cdef int32_t i = start
    while i < call.count and (<Part*> call.batches[i].part).topic == topic:
        i += 1
    return i - start


cdef void put_topic(Writer* w, const Topic* t, int16_t version, int32_t partitions) noexcept nogil:
    if version >= PRODUCE_TOPIC_IDS:
        put_raw(w, t.id, 16)
    elif version >= FLEXIBLE:
        put_compact_string(w, t.name, t.name_bytes)
    else:
        put_string(w, t.name, t.name_bytes)
    put_count(w, version >= FLEXIBLE, partitions)


cdef void put_batches(ProduceCall* call, Writer* w, int16_t version) noexcept nogil:
    cdef bint flexible = version >= FLEXIBLE
    cdef uint8_t* piece = call.head
    cdef ClientBatch* b
    cdef int32_t left = 0
    cdef int32_t i
    cdef int32_t pieces = 0
    for i in range(call.count):
        b = call.batches[i]
        if left == 0:
            left = run_length(call, i)
            put_topic(w, (<Part*> b.part).topic, version, left)
        put_i32(w, b.partition)
        if flexible:
            put_uvarint(w, <int32_t> b.builder.buffer.n + 1)
        else:
            put_i32(w, <int32_t> b.builder.buffer.n)
        call.pieces[pieces].iov_base = piece
        call.pieces[pieces].iov_len = w.p - piece
        call.pieces[pieces + 1].iov_base = b.builder.buffer.p
        call.pieces[pieces + 1].iov_len = b.builder.buffer.n
        pieces += 2
        piece = w.p
        left -= 1
        if flexible:
            put_no_tags(w)
            if left == 0:
                put_no_tags(w)
    if flexible:
        put_no_tags(w)
        call.pieces[pieces].iov_base = piece
        call.pieces[pieces].iov_len = w.p - piece
        pieces += 1
    call.call.pieces = call.pieces
    call.call.piece_count = pieces


cdef bint produce_encode(
    ProduceCall* call, Loop* loop, int16_t version, int16_t acks, int32_t timeout_ms,
    Slice transactional_id
) noexcept nogil:
    cdef size_t room = HEAD_BYTES + loop.client_id_bytes + max(transactional_id.n, 0)
    cdef int32_t topics = 0
    cdef int32_t i = 0
    cdef Writer w
    qsort(call.batches, call.count, sizeof(void*), by_topic)
    while i < call.count:
        room += TOPIC_BYTES + (<Part*> call.batches[i].part).topic.name_bytes
        topics += 1
        i += run_length(call, i)
    room += PARTITION_BYTES * <size_t> call.count
    call.head = <uint8_t*> malloc(room)
    if call.head == NULL:
        return False
    call.call.api_key = PRODUCE_KEY
    call.call.api_version = version
    call.call.flexible = version >= FLEXIBLE
    call.call.answered = acks != 0
    writer_init(&w, call.head, room)
    link_put_header(loop, &w, &call.call)
    if version >= FLEXIBLE:
        put_compact_string(&w, transactional_id.p, transactional_id.n)
    else:
        put_string(&w, transactional_id.p, transactional_id.n)
    put_i16(&w, acks)
    put_i32(&w, timeout_ms)
    put_count(&w, version >= FLEXIBLE, topics)
    put_batches(call, &w, version)
    return not w.full


# ---- the answer

cdef void read_leader(Cursor* c, Answer* answer) noexcept nogil:
    """Tagged fields of a partition."""
    cdef const uint8_t* end
    cdef uint32_t tag, size
    cdef uint32_t _i
    for _i in range(get_tag_count(c)):
        tag = get_uvarint(c)
        size = get_uvarint(c)
        if size > cursor_left(c):
            skip(c, size)
            return
        end = c.p + size
        if tag == LEADER_TAG and size >= 8:
            answer.leader = get_i32(c)
            answer.leader_epoch = get_i32(c)
        skip(c, <size_t> (end - c.p))


cdef void read_faults(Cursor* c, bint flexible, Answer* answer) noexcept nogil:
    cdef int32_t _i
    answer.faults_count = get_count(c, flexible, FAULT_BYTES_MIN)
    answer.faults = c.p
    for _i in range(answer.faults_count):
        get_i32(c)
        if flexible:
            get_compact_nullable_string(c)
            skip_tags(c)
        else:
            get_nullable_string(c)
    answer.message = get_compact_nullable_string(c) if flexible else get_nullable_string(c)


cdef void read_answer(Cursor* c, int16_t version, Answer* answer) noexcept nogil:
    memset(answer, 0, sizeof(Answer))
    answer.seen = True
    answer.log_start = -1
    answer.leader = answer.leader_epoch = -1
    answer.message.n = -1
    answer.code = get_i16(c)
    answer.base_offset = get_i64(c)
    answer.append_time = get_i64(c)
    if version >= LOG_START:
        answer.log_start = get_i64(c)
    if version >= RECORD_ERRORS:
        read_faults(c, version >= FLEXIBLE, answer)
    if version >= FLEXIBLE:
        read_leader(c, answer)


cdef bint same_topic(const Topic* t, const uint8_t* id, Slice name) noexcept nogil:
    if id != NULL:
        return memcmp(t.id, id, 16) == 0
    return t.name_bytes == name.n and memcmp(t.name, name.p, name.n) == 0


cdef int32_t find_batch(
    ProduceCall* call, int32_t near, const uint8_t* id, Slice name, int32_t partition
) noexcept nogil:
    """Brokers answer in the order of the request, so the one after the last is looked at first."""
    cdef int32_t i, at
    for i in range(call.count):
        at = (near + i) % call.count
        if call.batches[at].partition == partition and same_topic(
            (<Part*> call.batches[at].part).topic, id, name
        ):
            return at
    return -1


cdef bint produce_decode(ProduceCall* call, const uint8_t* p, size_t n) noexcept nogil:
    cdef int16_t version = call.call.api_version
    cdef bint flexible = version >= FLEXIBLE
    cdef const uint8_t* id = NULL
    cdef int32_t found = 0
    cdef int32_t at = -1
    cdef int32_t i, partitions, topics
    cdef int32_t _topic, _partition
    cdef Slice name
    cdef Cursor c
    name.p = NULL
    name.n = 0
    for i in range(call.count):
        call.answers[i].seen = False
    cursor_init(&c, p, n)
    topics = get_count(&c, flexible, TOPIC_BYTES_MIN)
    for _topic in range(topics):
        if version >= PRODUCE_TOPIC_IDS:
            id = get_uuid(&c)
        else:
            name = get_compact_string(&c) if flexible else get_string(&c)
        partitions = get_count(&c, flexible, ANSWER_BYTES_MIN)
        for _partition in range(partitions):
            i = get_i32(&c)
            if c.bad:
                return False
            at = find_batch(call, at + 1, id, name, i)
            if at < 0 or call.answers[at].seen:
                return False
            read_answer(&c, version, &call.answers[at])
            found += 1
        if flexible:
            skip_tags(&c)
    call.throttle_ms = get_i32(&c)
    if flexible:
        skip_tags(&c)
    return not c.bad and found == call.count


cdef const uint8_t* produce_fault(
    const uint8_t* p, bint flexible, int32_t* index, Slice* message
) noexcept nogil:
    cdef Cursor c
    cursor_init(&c, p, 1 << 30)
    index[0] = get_i32(&c)
    if flexible:
        message[0] = get_compact_nullable_string(&c)
        skip_tags(&c)
    else:
        message[0] = get_nullable_string(&c)
    return c.p
