"""Reading and writing ListOffsets; see list_offsets_wire.pxd."""
from kbroker.ext.wire cimport (
    get_compact_string,
    get_count,
    get_i8,
    get_i32,
    get_i64,
    get_string,
    put_compact_string,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_string,
    skip_tags,
)

cdef enum:
    ISOLATION_LEVEL = 2             # the first version with it, as those that follow
    THROTTLE_TIME = 2
    FLEXIBLE = 6
    TIMEOUT = 10
    TOPIC_BYTES_MIN = 3
    PARTITION_BYTES_MIN = 12
    HEAD_BYTES = 16                 # of the response: throttle time, number of topics, no tags
    TOPIC_BYTES = 12                # length of the name, number of partitions, no tags
    PARTITION_BYTES = 32


cdef void list_offsets_read_head(Cursor* c, int16_t version, ListOffsetsHead* out) noexcept nogil:
    out.replica_id = get_i32(c)
    out.isolation = get_i8(c) if version >= ISOLATION_LEVEL else 0
    out.topics_count = get_count(c, version >= FLEXIBLE, TOPIC_BYTES_MIN)


cdef void list_offsets_read_topic(Cursor* c, int16_t version, ListOffsetsTopic* out) noexcept nogil:
    out.name = get_compact_string(c) if version >= FLEXIBLE else get_string(c)
    out.partitions_count = get_count(c, version >= FLEXIBLE, PARTITION_BYTES_MIN)


cdef void list_offsets_read_partition(Cursor* c, int16_t version,
                                      ListOffsetsTarget* out) noexcept nogil:
    out.partition = get_i32(c)
    out.current_leader_epoch = get_i32(c) if version >= LEADER_EPOCHS else -1
    out.timestamp = get_i64(c)
    if version >= FLEXIBLE:
        skip_tags(c)


cdef void list_offsets_end_topic(Cursor* c, int16_t version) noexcept nogil:
    if version >= FLEXIBLE:
        skip_tags(c)


cdef void list_offsets_read_tail(Cursor* c, int16_t version) noexcept nogil:
    if version >= TIMEOUT:
        get_i32(c)
    if version >= FLEXIBLE:
        skip_tags(c)


# -- the response ---------------------------------------------------------------------------

cdef uint32_t list_offsets_head_bytes_max() noexcept nogil:
    return HEAD_BYTES


cdef uint32_t list_offsets_topic_bytes_max(const ListOffsetsTopic* topic) noexcept nogil:
    return (TOPIC_BYTES + <uint32_t>topic.name.n
            + <uint32_t>topic.partitions_count * PARTITION_BYTES)


cdef void list_offsets_put_head(Writer* w, int16_t version, int32_t topics_count) noexcept nogil:
    if version >= THROTTLE_TIME:
        put_i32(w, 0)
    put_count(w, version >= FLEXIBLE, topics_count)


cdef void list_offsets_put_throttle(Writer* w, int16_t version, int32_t throttle_ms) noexcept nogil:
    if version >= THROTTLE_TIME:
        put_i32(w, throttle_ms)


cdef void list_offsets_put_topic(Writer* w, int16_t version, const Slice* name,
                                 int32_t partitions_count) noexcept nogil:
    if version >= FLEXIBLE:
        put_compact_string(w, name.p, name.n)
    else:
        put_string(w, name.p, name.n)
    put_count(w, version >= FLEXIBLE, partitions_count)


cdef void list_offsets_put_partition(Writer* w, int16_t version, int32_t partition, int16_t error,
                                     const TimestampOffset* found) noexcept nogil:
    put_i32(w, partition)
    put_i16(w, error)
    put_i64(w, found.timestamp)
    put_i64(w, found.offset)
    if version >= LEADER_EPOCHS:
        put_i32(w, found.leader_epoch)
    if version >= FLEXIBLE:
        put_no_tags(w)


cdef void list_offsets_put_end(Writer* w, int16_t version) noexcept nogil:
    if version >= FLEXIBLE:
        put_no_tags(w)
