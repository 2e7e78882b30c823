"""Reading and writing Produce; see produce_wire.pxd."""
from libc.stdlib cimport malloc
from libc.string cimport strlen

from kbroker.ext.batch cimport batch_bad_records, batch_error_message
from kbroker.ext.wire cimport (
    cursor_init,
    get_compact_nullable_bytes,
    get_compact_nullable_string,
    get_compact_string,
    get_count,
    get_i16,
    get_i32,
    get_nullable_bytes,
    get_nullable_string,
    get_string,
    get_uuid,
    put_compact_string,
    put_count,
    put_i16,
    put_i32,
    put_i64,
    put_no_tags,
    put_raw,
    put_string,
    skip_tags,
)

cdef enum:
    FLEXIBLE = 9
    TOPIC_IDS = 13
    PARTITION_BYTES_MIN = 6         # of a request: index, null records, tags
    TOPIC_BYTES_MIN = 3
    RESPONSE_PARTITION_BYTES = 64   # without texts
    RESPONSE_TOPIC_BYTES = 32       # without the name, which the request's bytes cover
    RESPONSE_FIXED_BYTES = 64
    BAD_RECORD_BYTES_MAX = 160


cdef void read_head(Cursor* c, int16_t version, ProduceHead* out) noexcept nogil:
    if version >= FLEXIBLE:
        out.transactional_id = get_compact_nullable_string(c)
    else:
        out.transactional_id = get_nullable_string(c)
    out.acks = get_i16(c)
    out.timeout_ms = get_i32(c)
    out.topics_count = get_count(c, version >= FLEXIBLE, TOPIC_BYTES_MIN)


cdef void read_topic(Cursor* c, int16_t version, ProduceTopic* out) noexcept nogil:
    out.id = NULL
    out.name.p = NULL
    out.name.n = 0
    if version >= TOPIC_IDS:
        out.id = get_uuid(c)
    elif version >= FLEXIBLE:
        out.name = get_compact_string(c)
    else:
        out.name = get_string(c)
    out.partitions_count = get_count(c, version >= FLEXIBLE, PARTITION_BYTES_MIN)


cdef void read_partition(Cursor* c, int16_t version, int32_t* partition,
                         Slice* records) noexcept nogil:
    partition[0] = get_i32(c)
    if version >= FLEXIBLE:
        records[0] = get_compact_nullable_bytes(c)
        skip_tags(c)
    else:
        records[0] = get_nullable_bytes(c)


cdef void end_topic(Cursor* c, int16_t version) noexcept nogil:
    if version >= FLEXIBLE:
        skip_tags(c)


# -- the response ---------------------------------------------------------------------------

cdef uint32_t response_bytes_max(uint32_t request_bytes, const PartitionResult* results,
                                 uint32_t count) noexcept nogil:
    cdef uint32_t total = RESPONSE_FIXED_BYTES
    cdef uint32_t i
    # Names are as long as in the request, whose other bytes leave room for the rest of a topic.
    for i in range(count):
        total += RESPONSE_PARTITION_BYTES + RESPONSE_TOPIC_BYTES
        total += <uint32_t>results[i].bad.count * BAD_RECORD_BYTES_MAX
        if results[i].message != NULL:
            total += <uint32_t>strlen(results[i].message) + 8
    return total + request_bytes


cdef void bad_records_find(const uint8_t* records, const uint8_t* end, const BatchRules* rules,
                           const BatchInfo* info, int32_t* left, BadRecords* out) noexcept nogil:
    cdef int32_t most = min(info.count, left[0])
    out.count = 0
    if most > 0:
        out.list = <BadRecord*>malloc(<size_t>most * sizeof(BadRecord))
    if out.list != NULL:
        out.count = batch_bad_records(records, end, rules, info, out.list, most)
        left[0] -= out.count


cdef void put_bad_records(Writer* w, bint flexible, const BadRecords* bad) noexcept nogil:
    cdef const char* text
    cdef int32_t i, length
    put_count(w, flexible, bad.count)
    for i in range(bad.count):
        text = batch_error_message(bad.list[i].code)
        length = <int32_t>strlen(text)
        put_i32(w, bad.list[i].index)
        if flexible:
            put_compact_string(w, <const uint8_t*>text, length)
            put_no_tags(w)
        else:
            put_string(w, <const uint8_t*>text, length)


cdef void put_partition(Writer* w, int16_t version, PartitionResult* result) noexcept nogil:
    cdef int32_t message_bytes = -1
    put_i32(w, result.partition)
    result.error_at = w.p
    put_i16(w, result.error)
    put_i64(w, result.base_offset)
    put_i64(w, result.log_append_time)
    if version >= 5:
        put_i64(w, result.log_start)
    if version >= 8:
        put_bad_records(w, version >= FLEXIBLE, &result.bad)
        if result.message != NULL:
            message_bytes = <int32_t>strlen(result.message)
        if version >= FLEXIBLE:
            put_compact_string(w, <const uint8_t*>result.message, message_bytes)
        else:
            put_string(w, <const uint8_t*>result.message, message_bytes)
    if version >= FLEXIBLE:
        put_no_tags(w)


cdef void put_topic(Writer* w, int16_t version, const ProduceTopic* topic) noexcept nogil:
    if version >= TOPIC_IDS:
        put_raw(w, topic.id, 16)
    elif version >= FLEXIBLE:
        put_compact_string(w, topic.name.p, topic.name.n)
    else:
        put_string(w, topic.name.p, topic.name.n)
    put_count(w, version >= FLEXIBLE, topic.partitions_count)


cdef void write_response(Writer* w, int16_t version, const uint8_t* body, const uint8_t* end,
                         PartitionResult* results, int32_t throttle_ms) noexcept nogil:
    cdef Cursor c
    cdef ProduceHead head
    cdef ProduceTopic topic
    cdef Slice records
    cdef int32_t partition
    cdef int32_t _i, _j
    cursor_init(&c, body, <size_t>(end - body))
    read_head(&c, version, &head)
    put_count(w, version >= FLEXIBLE, head.topics_count)
    for _i in range(head.topics_count):
        read_topic(&c, version, &topic)
        put_topic(w, version, &topic)
        for _j in range(topic.partitions_count):
            read_partition(&c, version, &partition, &records)
            put_partition(w, version, results)
            results += 1
        end_topic(&c, version)
        if version >= FLEXIBLE:
            put_no_tags(w)
    put_i32(w, throttle_ms)
    if version >= FLEXIBLE:
        put_no_tags(w)
