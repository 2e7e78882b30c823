"""Python's face of record batches, for the control plane, the client, tools and tests."""

from collections import namedtuple

from kbroker.ext.batch cimport (
    BATCH_OK, BATCH_SHORT, BatchInfo, BatchRules, RecordCursor, RECORDS_OFFSET, batch_crc_ok,
    batch_error_code, batch_error_message, batch_next_bad_record, batch_parse,
    batch_set_base_offset, batch_set_leader_epoch, batch_set_timestamps, batch_validate,
    next_record, records_init,
)
from kbroker.ext.record cimport Header, Record as RecordStruct, next_header
from kbroker.ext.wire cimport Slice
from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, uint8_t


class BatchError(ValueError):
    """A record batch that cannot be taken. `code` is ext's own, `error_code` Kafka's, `record`
    the index of the first bad record or -1."""

    def __init__(self, code: int, record: int = -1) -> None:
        super().__init__((<bytes> batch_error_message(code)).decode())
        self.code = code
        self.error_code = batch_error_code(code)
        self.record = record


Record = namedtuple("Record", "offset timestamp key value headers")
Record.__doc__ = """A record: offset, timestamp in ms, key, value (bytes or None) and headers, a
tuple of (name, bytes or None); a name that is no UTF-8 keeps its bytes as surrogates."""

Batch = namedtuple(
    "Batch",
    "position length base_offset last_offset_delta leader_epoch magic crc attributes "
    "base_timestamp max_timestamp producer_id producer_epoch base_sequence count compression "
    "transactional control log_append_time",
)
Batch.__doc__ = """The header of a batch that begins at `position` of a buffer and takes `length`
bytes of it. Timestamps in ms; compression is 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd."""


cdef object batch_object(size_t position, const BatchInfo* info):
    return Batch(
        position, info.length, info.base_offset, info.last_offset_delta, info.leader_epoch,
        info.magic, info.crc, info.attributes, info.base_timestamp, info.max_timestamp,
        info.producer_id, info.producer_epoch, info.base_sequence, info.count,
        info.compression, info.transactional != 0, info.control != 0,
        info.log_append_time != 0,
    )


cdef object slice_object(Slice s):
    if s.n < 0:
        return None
    return s.p[:s.n] if s.n else b""


cdef tuple header_objects(const RecordStruct* record):
    cdef Header header
    cdef const uint8_t* p = record.headers
    cdef list found = []
    for _ in range(record.header_count):
        p = next_header(p, record.end, &header)
        if p == NULL:
            raise BatchError(-17)
        key = slice_object(header.key).decode("utf-8", "surrogateescape")
        found.append((key, slice_object(header.value)))
    return tuple(found)


def batches(data: bytes | bytearray | memoryview, check_crc: bool = True) -> list[Batch]:
    """The whole batches at the beginning of a buffer; a part of one at its end is left out, as
    the answer to a Fetch may hold one."""
    cdef const uint8_t[::1] view = data
    cdef size_t n = view.shape[0]
    cdef size_t at = 0
    cdef BatchInfo info
    cdef int code
    cdef list found = []
    while at < n:
        code = batch_parse(&view[at], &view[0] + n, &info)
        if code == BATCH_SHORT:
            break
        if code != BATCH_OK:
            raise BatchError(code)
        if check_crc and not batch_crc_ok(&view[at], &info):
            raise BatchError(-3)
        found.append(batch_object(at, &info))
        at += info.length
    return found


cdef list record_objects(const BatchInfo* info, const uint8_t* p, const uint8_t* end):
    cdef RecordCursor c
    cdef RecordStruct record
    cdef int code
    cdef list found = []
    records_init(&c, info, p, end)
    while True:
        code = next_record(&c, &record)
        if code == 0:
            return found
        if code < 0:
            raise BatchError(code, len(found))
        found.append(
            Record(
                record.offset, record.timestamp, slice_object(record.key),
                slice_object(record.value), header_objects(&record),
            )
        )


cdef void rules_from(BatchRules* rules, dict given):
    rules.now_ms = given.pop("now_ms", 0)
    rules.timestamp_before_max_ms = given.pop("timestamp_before_max_ms", INT64_MAX)
    rules.timestamp_after_max_ms = given.pop("timestamp_after_max_ms", INT64_MAX)
    rules.max_message_bytes = given.pop("max_message_bytes", INT32_MAX)
    rules.log_append_time = given.pop("log_append_time", False)
    rules.compacted = given.pop("compacted", False)
    rules.from_client = given.pop("from_client", True)
    rules.zstd_allowed = given.pop("zstd_allowed", True)


def validate(data: bytes | bytearray | memoryview, **rules: int) -> Batch:
    """What the broker checks before it appends a batch. Raises BatchError. The answer's
    max_timestamp is what must be stored."""
    cdef const uint8_t[::1] view = data
    cdef size_t n = view.shape[0]
    cdef const uint8_t* p = &view[0] if n else <const uint8_t*> b""
    cdef BatchInfo info
    cdef BatchRules wanted
    cdef int32_t bad_record
    cdef int code
    rules_from(&wanted, rules)
    if rules:
        raise TypeError(f"no such rule: {', '.join(rules)}")
    with nogil:
        code = batch_validate(p, p + n, &wanted, &info, &bad_record)
    if code != BATCH_OK:
        raise BatchError(code, bad_record)
    return batch_object(0, &info)


def bad_records(data: bytes | bytearray | memoryview, **rules: int) -> list[tuple[int, int]]:
    """Index and code of every record that a batch of sound structure is refused for."""
    cdef const uint8_t[::1] view = data
    cdef size_t n = view.shape[0]
    cdef BatchInfo info
    cdef BatchRules wanted
    cdef int32_t index = -1
    cdef int code
    cdef list found = []
    rules_from(&wanted, rules)
    if n == 0 or batch_parse(&view[0], &view[0] + n, &info) != BATCH_OK:
        return found
    while True:
        code = batch_next_bad_record(
            &view[RECORDS_OFFSET], &view[0] + info.length, &wanted, &info, index + 1, &index
        )
        if code == BATCH_OK:
            return found
        found.append((index, code))


def assign(data: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Set the two fields that the checksum does not cover, as an append does."""
    cdef uint8_t[::1] view = data
    if view.shape[0] < RECORDS_OFFSET:
        raise BatchError(-4)
    batch_set_base_offset(&view[0], base_offset)
    batch_set_leader_epoch(&view[0], leader_epoch)


def set_timestamps(data: bytearray, log_append_time: bool, max_timestamp: int) -> None:
    """Set timestamp type and max timestamp, and the checksum with them."""
    cdef uint8_t[::1] view = data
    cdef BatchInfo info
    cdef size_t n = view.shape[0]
    cdef int code = BATCH_SHORT
    if n:
        code = batch_parse(&view[0], &view[0] + n, &info)
    if code != BATCH_OK:
        raise BatchError(-4 if code == BATCH_SHORT else code)
    batch_set_timestamps(&view[0], &info, log_append_time, max_timestamp)
