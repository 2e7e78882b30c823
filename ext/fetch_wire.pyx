"""Reading and writing Fetch; see fetch_wire.pxd."""
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_load_i32
from kbroker.ext.error_codes cimport (
    FENCED_LEADER_EPOCH,
    KAFKA_STORAGE_ERROR,
    NOT_LEADER_OR_FOLLOWER,
)
from kbroker.ext.wire cimport (
    TOPIC_NAME_BYTES_MAX,
    Slice,
    cursor_fail,
    cursor_init,
    get_compact_string,
    get_count,
    get_i8,
    get_i32,
    get_i64,
    get_string,
    get_tag_count,
    get_uuid,
    get_uvarint,
    put_compact_string,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_raw,
    put_string,
    put_uvarint,
    skip_tags,
    take,
)

cdef enum:
    FLEXIBLE = 12
    TOPIC_IDS = 13
    TOPIC_BYTES_MIN = 3
    PARTITION_BYTES_MIN = 16
    TAG_REPLICA_STATE = 1
    TAG_DIVERGING_EPOCH = 0
    TAG_CURRENT_LEADER = 1
    LEADER_NAMED = 16
    DIVERGING_EPOCH_BYTES = 13      # epoch, end offset, no tags
    CURRENT_LEADER_BYTES = 9        # node, epoch, no tags
    RESPONSE_PARTITION_BYTES = 96
    ABORTED_BYTES = 17


cdef void fetch_read_head(Cursor* c, int16_t version, FetchHead* out) noexcept nogil:
    out.replica_id = get_i32(c) if version < 15 else -1
    out.max_wait_ms = get_i32(c)
    out.min_bytes = get_i32(c)
    out.bytes_max = get_i32(c)
    out.isolation = get_i8(c)
    out.session_id = get_i32(c) if version >= 7 else 0
    out.session_epoch = get_i32(c) if version >= 7 else -1
    out.topics_count = get_count(c, version >= FLEXIBLE, TOPIC_BYTES_MIN)


cdef void read_topic_key(Cursor* c, int16_t version, FetchTarget* out) noexcept nogil:
    cdef Slice name
    cdef const uint8_t* topic_id
    memset(out, 0, sizeof(FetchTarget))
    if version >= TOPIC_IDS:
        topic_id = get_uuid(c)
        if topic_id != NULL:
            memcpy(out.id, topic_id, 16)
        return
    name = get_compact_string(c) if version >= FLEXIBLE else get_string(c)
    if name.n > TOPIC_NAME_BYTES_MAX:
        # No topic has such a name, and it would be copied for each of its partitions.
        cursor_fail(c)
        name.n = 0
    out.name = name.p if name.p != NULL else <const uint8_t*>b""
    out.name_length = name.n


cdef int32_t fetch_read_topic(Cursor* c, int16_t version, FetchTarget* out) noexcept nogil:
    """Name or id into `out`; returns the number of partitions that follow."""
    read_topic_key(c, version, out)
    return get_count(c, version >= FLEXIBLE, PARTITION_BYTES_MIN)


cdef void fetch_read_partition(Cursor* c, int16_t version, FetchTarget* out) noexcept nogil:
    out.partition = get_i32(c)
    out.current_leader_epoch = get_i32(c) if version >= 9 else -1
    out.offset = get_i64(c)
    out.last_fetched_epoch = get_i32(c) if version >= FLEXIBLE else -1
    if version >= 5:
        get_i64(c)                  # a follower's log start offset
    out.bytes_max = get_i32(c)
    if version >= FLEXIBLE:
        skip_tags(c)


cdef int32_t fetch_read_forgotten_count(Cursor* c, int16_t version) noexcept nogil:
    return get_count(c, version >= FLEXIBLE, TOPIC_BYTES_MIN) if version >= 7 else 0


cdef int32_t fetch_read_forgotten_topic(Cursor* c, int16_t version,
                                        FetchTarget* out) noexcept nogil:
    read_topic_key(c, version, out)
    return get_count(c, version >= FLEXIBLE, 4)


cdef void fetch_end_struct(Cursor* c, int16_t version) noexcept nogil:
    if version >= FLEXIBLE:
        skip_tags(c)


cdef void fetch_read_tail(Cursor* c, int16_t version, FetchHead* head) noexcept nogil:
    cdef Cursor field
    cdef uint32_t fields, tag, size, _i
    cdef const uint8_t* at
    if version >= FLEXIBLE:
        get_compact_string(c)       # rack id
    elif version >= 11:
        get_string(c)
    if version < FLEXIBLE:
        return
    fields = get_tag_count(c)
    for _i in range(fields):
        tag = get_uvarint(c)
        size = get_uvarint(c)
        at = take(c, size)
        if tag == TAG_REPLICA_STATE and version >= 15 and at != NULL:
            cursor_init(&field, at, size)
            head.replica_id = get_i32(&field)
            c.bad |= field.bad


# -- the response ---------------------------------------------------------------------------

cdef uint32_t fetch_partition_bytes_max(const FetchPartition* partition) noexcept nogil:
    """Bytes of the partition and of a topic before it, records not counted."""
    cdef uint32_t total = RESPONSE_PARTITION_BYTES + <uint32_t>partition.target.name_length
    if partition.aborted_count > 0:
        total += <uint32_t>partition.aborted_count * ABORTED_BYTES
    return total


cdef void fetch_put_head(Writer* w, int16_t version, int16_t error, int32_t session_id,
                         int32_t topics_count, int32_t throttle_ms) noexcept nogil:
    put_i32(w, throttle_ms)
    if version >= 7:
        put_i16(w, error)
        put_i32(w, session_id)
    put_count(w, version >= FLEXIBLE, topics_count)


cdef void fetch_put_topic(Writer* w, int16_t version, const FetchTarget* target,
                          int32_t partitions_count) noexcept nogil:
    if version >= TOPIC_IDS:
        put_raw(w, target.id, 16)
    elif version >= FLEXIBLE:
        put_compact_string(w, target.name, target.name_length)
    else:
        put_string(w, target.name, target.name_length)
    put_count(w, version >= FLEXIBLE, partitions_count)


cdef void put_aborted(Writer* w, int16_t version, const FetchPartition* p) noexcept nogil:
    cdef int32_t i
    put_count(w, version >= FLEXIBLE, p.aborted_count)
    for i in range(p.aborted_count):
        put_i64(w, p.aborted[i].producer_id)
        put_i64(w, p.aborted[i].first_offset)
        if version >= FLEXIBLE:
            put_no_tags(w)


cdef inline int16_t told_error(int16_t version, int16_t error) noexcept nogil:
    """Clients of old do not know the other, and would not try again."""
    return NOT_LEADER_OR_FOLLOWER if version <= 5 and error == KAFKA_STORAGE_ERROR else error


cdef void fetch_put_partition(Writer* w, int16_t version,
                              const FetchPartition* p) noexcept nogil:
    put_i32(w, p.target.partition)
    put_i16(w, told_error(version, p.error))
    put_i64(w, p.high_watermark)
    put_i64(w, p.last_stable_offset)
    if version >= 5:
        put_i64(w, p.log_start)
    put_aborted(w, version, p)
    if version >= 11:
        put_i32(w, -1)              # preferred read replica
    if version >= FLEXIBLE:
        put_uvarint(w, <uint32_t>p.slice.length + 1)
    else:
        put_i32(w, <int32_t>p.slice.length)


cdef void fetch_put_end(Writer* w, int16_t version) noexcept nogil:
    """The tagged fields of a topic or of the whole response: none."""
    if version >= FLEXIBLE:
        put_no_tags(w)


cdef inline bint names_leader(int16_t version, const FetchPartition* p) noexcept nogil:
    return version >= LEADER_NAMED and (p.error == NOT_LEADER_OR_FOLLOWER
                                        or p.error == FENCED_LEADER_EPOCH)


cdef void fetch_put_partition_tags(Writer* w, int16_t version, int32_t node_id,
                                   const FetchPartition* p) noexcept nogil:
    cdef bint leader = names_leader(version, p)
    if version < FLEXIBLE:
        return
    put_uvarint(w, (1 if p.diverging_epoch >= 0 else 0) + (1 if leader else 0))
    if p.diverging_epoch >= 0:
        put_uvarint(w, TAG_DIVERGING_EPOCH)
        put_uvarint(w, DIVERGING_EPOCH_BYTES)
        put_i32(w, p.diverging_epoch)
        put_i64(w, p.diverging_end)
        put_no_tags(w)
    if leader:
        put_uvarint(w, TAG_CURRENT_LEADER)
        put_uvarint(w, CURRENT_LEADER_BYTES)
        put_i32(w, node_id)
        put_i32(w, atomic_load_i32(&p.log.leader_epoch) if p.log != NULL else -1)
        put_no_tags(w)
