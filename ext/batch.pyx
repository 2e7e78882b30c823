"""Record batch: parse, validate, patch in place, iterate. The format is in batch.pxd."""

from libc.stdint cimport uint64_t
from libc.string cimport memcpy

from kbroker.ext.compression cimport CODEC_MAX, CODEC_NONE, CODEC_ZSTD
from kbroker.ext.crc32c cimport crc32c, crc32c_patch
from kbroker.ext.endian cimport load_be32, load_i16, load_i32, load_i64, store_be32
from kbroker.ext.record cimport Walk, read_record, walk_records
from kbroker.ext.wire cimport store_i16, store_i32, store_i64


cdef enum:
    OLD_BATCH_BYTES_MIN = 26        # of magic 0 and 1: whatever claims less is corrupt
    TIME_SANE_MS = 0x4000000000000000       # 2^62


# ---- header

cdef inline void read_header(const uint8_t* p, BatchInfo* out) noexcept nogil:
    out.base_offset = load_i64(p + BASE_OFFSET_OFFSET)
    out.length = load_i32(p + LENGTH_OFFSET) + LENGTH_PREFIX_BYTES
    out.leader_epoch = load_i32(p + LEADER_EPOCH_OFFSET)
    out.magic = <int8_t> p[MAGIC_OFFSET]
    out.crc = load_be32(p + CRC_OFFSET)
    out.attributes = load_i16(p + ATTRIBUTES_OFFSET)
    out.last_offset_delta = load_i32(p + LAST_OFFSET_DELTA_OFFSET)
    out.base_timestamp = load_i64(p + BASE_TIMESTAMP_OFFSET)
    out.max_timestamp = load_i64(p + MAX_TIMESTAMP_OFFSET)
    out.producer_id = load_i64(p + PRODUCER_ID_OFFSET)
    out.producer_epoch = load_i16(p + PRODUCER_EPOCH_OFFSET)
    out.base_sequence = load_i32(p + BASE_SEQUENCE_OFFSET)
    out.count = load_i32(p + COUNT_OFFSET)
    out.compression = <int8_t> (out.attributes & CODEC_MASK)
    out.transactional = out.attributes & TRANSACTIONAL_BIT != 0
    out.control = out.attributes & CONTROL_BIT != 0
    out.log_append_time = out.attributes & TIMESTAMP_TYPE_BIT != 0
    out.patch_max_timestamp = False


cdef int batch_parse(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil:
    cdef size_t n = <size_t> (end - p)
    cdef int64_t length
    out.length = 0
    if n < LENGTH_PREFIX_BYTES:
        return BATCH_SHORT
    length = <int64_t> load_i32(p + LENGTH_OFFSET) + LENGTH_PREFIX_BYTES
    if length < RECORDS_OFFSET or length > 0x7FFFFFFF:
        return BATCH_BAD_LENGTH
    if n > MAGIC_OFFSET and p[MAGIC_OFFSET] != 2:
        return BATCH_OLD_MAGIC if p[MAGIC_OFFSET] < 2 else BATCH_BAD_MAGIC
    if n < RECORDS_OFFSET:
        return BATCH_SHORT
    read_header(p, out)
    return BATCH_OK if n >= <size_t> length else BATCH_SHORT


cdef bint batch_crc_ok(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    return crc32c(p + ATTRIBUTES_OFFSET, info.length - ATTRIBUTES_OFFSET) == info.crc


# ---- validate

cdef int check_frame(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules, BatchInfo* out
) noexcept nogil:
    """Exactly one whole batch of magic 2. The order of the questions is Kafka's, and with it the
    code that a batch with several faults gets."""
    cdef int64_t n = end - p
    cdef int64_t length
    if n < LENGTH_PREFIX_BYTES:
        return BATCH_EMPTY
    length = <int64_t> load_i32(p + LENGTH_OFFSET) + LENGTH_PREFIX_BYTES
    if length < OLD_BATCH_BYTES_MIN:
        return BATCH_BAD_LENGTH
    if n <= MAGIC_OFFSET:
        return BATCH_EMPTY
    if p[MAGIC_OFFSET] > 2:
        return BATCH_BAD_MAGIC
    if length > n:
        return BATCH_EMPTY
    if p[MAGIC_OFFSET] < 2:
        return BATCH_OLD_MAGIC
    if length < RECORDS_OFFSET:
        if rules.from_client and n == length and load_i64(p + BASE_OFFSET_OFFSET) != 0:
            return BATCH_BAD_BASE_OFFSET
        return BATCH_BAD_LENGTH
    read_header(p, out)
    if out.compression == CODEC_ZSTD and not rules.zstd_allowed:
        return BATCH_ZSTD_TOO_EARLY
    if n != length:
        return BATCH_TRAILING
    return BATCH_OK


cdef int check_content(
    const uint8_t* p, const BatchRules* rules, const BatchInfo* info
) noexcept nogil:
    """What holds for a batch as a whole whoever wrote it: size, checksum, codec."""
    if rules.from_client and info.base_offset != 0:
        return BATCH_BAD_BASE_OFFSET
    if info.length > rules.max_message_bytes:
        return BATCH_TOO_LARGE
    if not batch_crc_ok(p, info):
        return BATCH_BAD_CRC
    if info.compression > CODEC_MAX:
        return BATCH_BAD_CODEC
    return BATCH_OK


cdef int check_producer_fields(const BatchInfo* info) noexcept nogil:
    """What a client may say in the header."""
    if info.last_offset_delta < 0:
        return BATCH_BAD_OFFSET_RANGE
    if info.count <= 0:
        return BATCH_BAD_COUNT
    if <int64_t> info.last_offset_delta + 1 != info.count:
        return BATCH_COUNT_MISMATCH
    if info.control:
        return BATCH_CONTROL
    if info.producer_id > NO_PRODUCER_ID:
        if info.base_sequence < 0:
            return BATCH_BAD_SEQUENCE
    if info.log_append_time:
        return BATCH_APPEND_TIME
    return BATCH_OK


cdef inline bint timestamp_ok(int64_t timestamp, const BatchRules* rules) noexcept nogil:
    # As Kafka has it, overflow included: a timestamp far below zero is "too late".
    cdef int64_t age = <int64_t> (<uint64_t> rules.now_ms - <uint64_t> timestamp)
    if timestamp == NO_TIMESTAMP:
        return True
    return age <= rules.timestamp_before_max_ms and (
        <int64_t> (0 - <uint64_t> age) <= rules.timestamp_after_max_ms
    )


cdef int batch_validate(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules,
    BatchInfo* out, int32_t* bad_record,
) noexcept nogil:
    cdef int code
    bad_record[0] = -1
    code = check_frame(p, end, rules, out)
    if code == BATCH_OK:
        code = check_content(p, rules, out)
    if code == BATCH_OK and rules.from_client:
        code = check_producer_fields(out)
    if code != BATCH_OK:
        return code
    if out.compression == CODEC_NONE:
        return batch_validate_records(p + RECORDS_OFFSET, end, rules, out, bad_record)
    if not rules.log_append_time and not (
        timestamp_ok(out.base_timestamp, rules) and timestamp_ok(out.max_timestamp, rules)
    ):
        return BATCH_BAD_TIMESTAMP
    return BATCH_OK


cdef int batch_validate_records(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules,
    BatchInfo* info, int32_t* bad_record,
) noexcept nogil:
    cdef Walk w
    cdef int64_t earliest, latest
    cdef bint times_ok
    bad_record[0] = -1
    walk_records(p, end, info.count, &w)
    if w.code != BATCH_OK:
        bad_record[0] = w.index if w.index < info.count else -1
        return w.code
    if w.index == 0:
        return BATCH_OK
    earliest = add_wrapping(info.base_timestamp, w.delta_min)
    latest = add_wrapping(info.base_timestamp, w.delta_max)
    # Within 0 .. 2^62 nothing overflows, and the two ends speak for all between.
    times_ok = rules.log_append_time or (
        info.base_timestamp >= 0 and info.base_timestamp < TIME_SANE_MS
        and w.delta_min > -TIME_SANE_MS and w.delta_max < TIME_SANE_MS and earliest >= 0
        and timestamp_ok(earliest, rules) and timestamp_ok(latest, rules)
    )
    if not times_ok or rules.compacted and w.keyless:
        return judge_records(p, end, rules, info, bad_record)
    if not rules.log_append_time:
        note_max_timestamp(info, latest)
    return BATCH_OK


cdef inline int64_t add_wrapping(int64_t a, int64_t b) noexcept nogil:
    return <int64_t> (<uint64_t> a + <uint64_t> b)


cdef inline void note_max_timestamp(BatchInfo* info, int64_t latest) noexcept nogil:
    """What the header must say. Kafka's maximum starts at -1, and it corrects the client's."""
    latest = latest if latest > NO_TIMESTAMP else NO_TIMESTAMP
    info.patch_max_timestamp = latest != info.max_timestamp
    info.max_timestamp = latest


cdef int judge_records(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules,
    BatchInfo* info, int32_t* bad_record,
) noexcept nogil:
    """The slow look at a batch of sound structure. As in Kafka one bad timestamp makes the
    whole answer INVALID_TIMESTAMP, whatever the first bad record suffers from."""
    cdef RecordCursor c
    cdef Record record
    cdef int code = BATCH_OK
    cdef int found
    cdef int64_t latest = NO_TIMESTAMP
    records_init(&c, info, p, end)
    while next_record(&c, &record) == 1:
        found = judge_record(&record, rules)
        if found != BATCH_OK:
            if code == BATCH_OK:
                bad_record[0] = info.count - c.left - 1
            if code != BATCH_BAD_TIMESTAMP:
                code = found
        latest = record.timestamp if record.timestamp > latest else latest
    if code == BATCH_OK and not rules.log_append_time:
        note_max_timestamp(info, latest)
    return code


cdef inline int judge_record(const Record* record, const BatchRules* rules) noexcept nogil:
    if rules.compacted and record.key.n < 0:
        return BATCH_NO_KEY
    if not rules.log_append_time and not timestamp_ok(record.timestamp, rules):
        return BATCH_BAD_TIMESTAMP
    return BATCH_OK


cdef int32_t batch_bad_records(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules, const BatchInfo* info,
    BadRecord* out, int32_t most,
) noexcept nogil:
    cdef RecordCursor c
    cdef Record record
    cdef int32_t found = 0
    cdef int code
    records_init(&c, info, p, end)
    while found < most and next_record(&c, &record) == 1:
        code = judge_record(&record, rules)
        if code != BATCH_OK:
            out[found].index = info.count - c.left - 1
            out[found].code = code
            found += 1
    return found


# ---- iterate

cdef void records_init(
    RecordCursor* c, const BatchInfo* info,
    const uint8_t* records, const uint8_t* records_end,
) noexcept nogil:
    c.p = records
    c.end = records_end
    c.base_offset = info.base_offset
    c.base_timestamp = info.base_timestamp
    c.append_timestamp = info.max_timestamp
    c.left = info.count
    c.log_append_time = info.log_append_time


cdef int next_record(RecordCursor* c, Record* out) noexcept nogil:
    cdef int32_t offset_delta
    cdef int64_t timestamp_delta
    if c.left <= 0:
        return 0 if c.p == c.end else BATCH_RECORDS_LEFT
    if not read_record(c.p, c.end, out, &offset_delta, &timestamp_delta):
        return BATCH_BAD_RECORD
    out.offset = add_wrapping(c.base_offset, offset_delta)
    out.timestamp = c.append_timestamp
    if not c.log_append_time:
        out.timestamp = add_wrapping(c.base_timestamp, timestamp_delta)
    c.p = out.end
    c.left -= 1
    return 1


# ---- patch in place

cdef void batch_set_base_offset(uint8_t* p, int64_t base_offset) noexcept nogil:
    store_i64(p + BASE_OFFSET_OFFSET, base_offset)


cdef void batch_set_leader_epoch(uint8_t* p, int32_t leader_epoch) noexcept nogil:
    store_i32(p + LEADER_EPOCH_OFFSET, leader_epoch)


cdef void batch_set_timestamps(
    uint8_t* p, BatchInfo* info, bint log_append_time, int64_t max_timestamp
) noexcept nogil:
    cdef uint8_t before[PRODUCER_ID_OFFSET - ATTRIBUTES_OFFSET]
    cdef size_t n = PRODUCER_ID_OFFSET - ATTRIBUTES_OFFSET
    cdef int16_t kept = info.attributes & ~TIMESTAMP_TYPE_BIT
    memcpy(before, p + ATTRIBUTES_OFFSET, n)
    info.attributes = kept | (TIMESTAMP_TYPE_BIT if log_append_time else 0)
    info.log_append_time = log_append_time
    info.max_timestamp = max_timestamp
    info.patch_max_timestamp = False
    store_i16(p + ATTRIBUTES_OFFSET, info.attributes)
    store_i64(p + MAX_TIMESTAMP_OFFSET, max_timestamp)
    info.crc = crc32c_patch(
        info.crc, before, p + ATTRIBUTES_OFFSET, n, info.length - PRODUCER_ID_OFFSET
    )
    store_be32(p + CRC_OFFSET, info.crc)


# ---- what a code means to a client

cdef int16_t batch_error_code(int code) noexcept nogil:
    if code >= 0:
        return 0
    if code == BATCH_BAD_LENGTH or code == BATCH_BAD_MAGIC or code == BATCH_BAD_CRC:
        return 2        # CORRUPT_MESSAGE
    if code == BATCH_BAD_COMPRESSION:
        return 2
    if code == BATCH_TOO_LARGE:
        return 10       # MESSAGE_TOO_LARGE
    if code == BATCH_BAD_TIMESTAMP or code == BATCH_APPEND_TIME:
        return 32       # INVALID_TIMESTAMP
    if code == BATCH_BAD_CODEC or code == BATCH_ZSTD_TOO_EARLY or code == BATCH_NO_CODEC:
        return 76       # UNSUPPORTED_COMPRESSION_TYPE
    if code == BATCH_NO_MEMORY:
        return -1       # UNKNOWN_SERVER_ERROR
    return 87           # INVALID_RECORD


cdef const char** MESSAGES = [
    "",
    "the batch's length is less than the smallest batch",
    "the batch's magic is not one of Kafka's",
    "the batch's checksum does not match its bytes",
    "there must be one whole record batch for each partition",
    "only record batches of magic 2 are taken",
    "there must be exactly one record batch for each partition",
    "the batch's base offset is not 0",
    "the batch is larger than max.message.bytes",
    "the batch's compression code is unknown",
    "zstd needs Produce version 7 or later",
    "the batch's last offset delta is below 0",
    "the batch's record count is below 1",
    "the batch's record count does not match its last offset delta",
    "clients may not write control batches",
    "the batch has a producer id and a sequence number below 0",
    "the batch has a producer id and a producer epoch below 0",
    "a record's lengths do not fit the batch",
    "there are more bytes in the batch than its records take",
    "a record's offset delta is not its place in the batch",
    "a compacted topic takes no record without a key",
    "a record's timestamp is too far from the broker's time",
    "producers may not set the timestamp type LogAppendTime",
    "the batch's records do not decompress",
    "the batch's records decompress to more than is allowed",
    "out of memory",
    "the compression codec is not available on this machine",
]


cdef const char* batch_error_message(int code) noexcept nogil:
    return MESSAGES[-code] if code < 0 and code >= BATCH_NO_CODEC else MESSAGES[0]
