"""Python's face of record batches, for the control plane, the client, tools and tests."""

from collections import namedtuple

from libc.stdint cimport INT32_MAX, INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from kbroker.ext.batch cimport (
    BATCH_BAD_COMPRESSION, BATCH_BAD_CRC, BATCH_BAD_RECORD, BATCH_BOMB, BATCH_EMPTY, BATCH_NO_CODEC,
    BATCH_NO_MEMORY, BATCH_OK, BATCH_SHORT, RECORDS_OFFSET, BadRecord, BatchInfo, BatchRules,
    RecordCursor, batch_bad_records, batch_crc_ok, batch_error_code, batch_error_message,
    batch_parse, batch_set_base_offset, batch_set_leader_epoch, batch_set_timestamps,
    batch_validate, batch_validate_records, next_record, records_init,
)
from kbroker.ext.batch_build cimport (
    BatchBuilder, BatchStamp, batch_decompress, batch_seal, batch_wrap, builder_append,
    builder_finish,
    builder_free, builder_init,
)
from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.compression cimport (
    CODEC_GZIP, CODEC_LEVEL_DEFAULT, CODEC_NONE, CODEC_ZSTD, Buffer, buffer_free,
)
from kbroker.ext.record cimport RECORD_BYTES_MIN, Header, Record as RecordStruct, next_header
from kbroker.ext.wire cimport Slice

from kbroker.ext.compression import NAMES


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
            raise BatchError(BATCH_BAD_RECORD)
        key = slice_object(header.key).decode("utf-8", "surrogateescape")
        found.append((key, slice_object(header.value)))
    return tuple(found)


def batches(data: bytes | bytearray | memoryview, check_crc: bool = True) -> list[Batch]:
    """The whole batches at the beginning of a buffer; a part of one at its end is left out, as
    the answer to a Fetch may hold one."""
    cdef Borrowed view = Borrowed(data)
    cdef size_t n = view.n
    cdef size_t at = 0
    cdef BatchInfo info
    cdef int code
    cdef list found = []
    while at < n:
        code = batch_parse(view.p + at, view.p + n, &info)
        if code == BATCH_SHORT:
            break
        if code != BATCH_OK:
            raise BatchError(code)
        if check_crc and not batch_crc_ok(view.p + at, &info):
            raise BatchError(BATCH_BAD_CRC)
        found.append(batch_object(at, &info))
        at += info.length
    return found


cdef int parse_one(Borrowed view, size_t at, BatchInfo* info) except -1:
    """The whole batch at `at`, or BatchError."""
    cdef size_t n = view.n
    cdef int code = BATCH_SHORT
    if at < n:
        code = batch_parse(view.p + at, view.p + n, info)
    if code != BATCH_OK:
        raise BatchError(BATCH_EMPTY if code == BATCH_SHORT else code)
    return 0


# ---- records of a batch

# Of one batch, unless told: as much as socket.request.max.bytes lets a client send plain.
DECOMPRESSED_BYTES_MAX = 100 * 1024 * 1024


cdef bytes plain_records(Borrowed view, size_t at, const BatchInfo* info, object limit):
    """The record section of a compressed batch, by ext's codecs or else by Python's."""
    cdef Buffer out
    cdef size_t most = limit
    cdef int code
    out.p = NULL
    out.n = out.room = 0
    with nogil:
        code = batch_decompress(view.p + at, info, most, &out)
    try:
        if code == BATCH_OK:
            return out.p[:out.n] if out.n else b""
    finally:
        buffer_free(&out)
    if code == BATCH_NO_CODEC:
        packed = view.p[at + RECORDS_OFFSET:at + info.length]
        return python_decompress(info.compression, packed, limit)
    raise BatchError(code)


def python_decompress(codec: int, data: bytes, limit: int) -> bytes:
    """gzip or zstd by Python's libraries, for a machine without libz.so.1 or libzstd.so.1. What
    is cut off at its end comes out short, and its last records are missed there."""
    if codec == CODEC_GZIP:
        import zlib
        failures = (zlib.error,)
        source = zlib.decompressobj(wbits=31)
        take = source.decompress
    elif codec == CODEC_ZSTD:
        import zstandard
        failures = (zstandard.ZstdError,)
        reader = zstandard.ZstdDecompressor().stream_reader(data, read_across_frames=True)

        def take(_: bytes, most: int) -> bytes:
            return reader.read(most)
    else:
        raise BatchError(BATCH_NO_CODEC)
    try:
        plain = take(data, limit + 1)
    except failures as error:
        raise BatchError(BATCH_BAD_COMPRESSION) from error
    if len(plain) > limit:
        raise BatchError(BATCH_BOMB)
    return plain


def records(
    data: bytes | bytearray | memoryview, position: int = 0,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """The records of the batch that begins at `position`, decompressed to at most `limit`
    bytes. The checksum is not looked at: see `batches`."""
    cdef Borrowed view = Borrowed(data)
    cdef size_t at = position
    cdef BatchInfo info
    cdef bytes plain
    parse_one(view, at, &info)
    if info.compression == CODEC_NONE:
        return record_objects(&info, view.p + at + RECORDS_OFFSET, view.p + at + info.length)
    plain = plain_records(view, at, &info, limit)
    return record_objects(&info, <const uint8_t*> plain, <const uint8_t*> plain + len(plain))


def read(
    data: bytes | bytearray | memoryview, start_offset: int = 0,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> list[Record]:
    """Every record of a buffer from start_offset on, as a consumer sees it: checksums checked,
    control batches left out, a part of a batch at the end left out."""
    found = []
    for batch in batches(data):
        last = batch.base_offset + batch.last_offset_delta
        if batch.control or last < start_offset:
            continue
        whole = records(data, batch.position, limit)
        if batch.base_offset < start_offset:
            whole = [record for record in whole if record.offset >= start_offset]
        found += whole
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
    cdef Borrowed view = Borrowed(data)
    cdef size_t n = view.n
    cdef const uint8_t* p = view.p
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


def validate_records(
    data: bytes | bytearray | memoryview, limit: int = DECOMPRESSED_BYTES_MAX, **rules: int
) -> Batch:
    """What `validate` leaves out for a compressed batch: its records, decompressed."""
    cdef Borrowed view = Borrowed(data)
    cdef BatchInfo info
    cdef BatchRules wanted
    cdef int32_t bad_record
    cdef int code
    cdef bytes plain
    parse_one(view, 0, &info)
    plain = plain_records(view, 0, &info, limit)
    rules_from(&wanted, rules)
    code = batch_validate_records(
        <const uint8_t*> plain, <const uint8_t*> plain + len(plain), &wanted, &info, &bad_record
    )
    if code != BATCH_OK:
        raise BatchError(code, bad_record)
    return batch_object(0, &info)


def bad_records(data: bytes | bytearray | memoryview, **rules: int) -> list[tuple[int, int]]:
    """Index and code of every record that a batch of sound structure is refused for."""
    cdef Borrowed view = Borrowed(data)
    cdef size_t n = view.n
    cdef BatchInfo info
    cdef BatchRules wanted
    cdef const uint8_t* p
    cdef BadRecord* bad
    cdef int32_t most
    rules_from(&wanted, rules)
    if n == 0 or batch_parse(view.p, view.p + n, &info) != BATCH_OK:
        return []
    p = view.p
    most = info.length // RECORD_BYTES_MIN
    bad = <BadRecord*> malloc(most * sizeof(BadRecord))
    if bad == NULL:
        raise MemoryError
    try:
        most = batch_bad_records(p + RECORDS_OFFSET, p + info.length, &wanted, &info, bad, most)
        return [(bad[i].index, bad[i].code) for i in range(most)]
    finally:
        free(bad)


def assign(data: bytearray, base_offset: int, leader_epoch: int) -> None:
    """Set the two fields that the checksum does not cover, as an append does."""
    cdef Borrowed view = Borrowed(data, True)
    if view.n < RECORDS_OFFSET:
        raise BatchError(BATCH_EMPTY)
    batch_set_base_offset(view.p, base_offset)
    batch_set_leader_epoch(view.p, leader_epoch)


def set_timestamps(data: bytearray, log_append_time: bool, max_timestamp: int) -> None:
    """Set timestamp type and max timestamp, and the checksum with them."""
    cdef Borrowed view = Borrowed(data, True)
    cdef BatchInfo info
    parse_one(view, 0, &info)
    batch_set_timestamps(view.p, &info, log_append_time, max_timestamp)


# ---- build

cdef Slice slice_of(bytes data):
    """Borrows from the object, which the caller keeps."""
    cdef Slice s
    s.p = NULL
    s.n = -1
    if data is not None:
        s.p = <const uint8_t*> data
        s.n = len(data)
    return s


cdef int append_one(BatchBuilder* b, int64_t timestamp, bytes key, bytes value, object headers):
    """As builder_append; a header's name is str or bytes."""
    cdef Py_ssize_t n = len(headers)
    cdef Header* found = NULL
    cdef list kept = []
    cdef int code
    if n:
        found = <Header*> malloc(n * sizeof(Header))
        if found == NULL:
            return BATCH_NO_MEMORY
    try:
        for i, (name, content) in enumerate(headers):
            if isinstance(name, str):
                name = name.encode("utf-8", "surrogateescape")
            kept.append(name)
            found[i].key = slice_of(name)
            found[i].value = slice_of(content)
        code = builder_append(b, timestamp, slice_of(key), slice_of(value), found, <int32_t> n)
    finally:
        free(found)
    return code


def build(
    records: object, *, codec: str = "none", level: int | None = None, base_offset: int = 0,
    leader_epoch: int = -1, producer_id: int = -1, producer_epoch: int = -1,
    base_sequence: int = -1, transactional: bool = False, control: bool = False,
) -> bytes:
    """A batch of the given records, each (timestamp in ms, key, value) or (timestamp, key,
    value, headers); at least one. Raises BatchError."""
    cdef BatchBuilder b
    cdef BatchStamp stamp
    cdef int number = NAMES.index(codec)
    cdef int wanted = CODEC_LEVEL_DEFAULT if level is None else level
    cdef int code
    stamp.base_offset = base_offset
    stamp.leader_epoch = leader_epoch
    stamp.producer_id = producer_id
    stamp.producer_epoch = producer_epoch
    stamp.base_sequence = base_sequence
    stamp.transactional = transactional
    stamp.control = control
    code = builder_init(&b, 0)
    try:
        for record in records:
            if code != BATCH_OK:
                raise BatchError(code)
            timestamp, key, value, *more = record
            headers, = more or [()]
            code = append_one(&b, timestamp, key, value, headers)
        if code == BATCH_OK:
            with nogil:
                code = builder_finish(&b, number, wanted, &stamp)
        if code == BATCH_NO_CODEC and builder_finish(&b, CODEC_NONE, 0, &stamp) == BATCH_OK:
            return recompress(b.buffer.p[:b.buffer.n], codec, level)
        if code != BATCH_OK:
            raise BatchError(code)
        return b.buffer.p[:b.buffer.n]
    finally:
        builder_free(&b)


def recompress(
    data: bytes | bytearray | memoryview, codec: str, level: int | None = None,
    limit: int = DECOMPRESSED_BYTES_MAX,
) -> bytes:
    """The batch at the beginning of `data` with its records in another codec."""
    cdef Borrowed view = Borrowed(data)
    cdef BatchInfo info
    cdef Buffer out
    cdef int number = NAMES.index(codec)
    cdef int wanted = CODEC_LEVEL_DEFAULT if level is None else level
    cdef bytes plain
    cdef const uint8_t* p
    cdef size_t n
    cdef int code
    parse_one(view, 0, &info)
    plain = plain_records(view, 0, &info, limit)
    p = plain
    n = len(plain)
    out.p = NULL
    out.n = out.room = 0
    with nogil:
        code = batch_wrap(view.p, p, n, number, wanted, &out)
    try:
        if code == BATCH_NO_CODEC:
            return python_wrap(view.p[:RECORDS_OFFSET], number, plain, level)
        if code != BATCH_OK:
            raise BatchError(code)
        return out.p[:out.n]
    finally:
        buffer_free(&out)


def python_wrap(header: bytes, codec: int, plain: bytes, level: int | None) -> bytes:
    """As batch_wrap, by Python's libraries."""
    cdef bytearray batch
    cdef Borrowed view
    if codec == CODEC_GZIP:
        import zlib
        gzip = zlib.compressobj(-1 if level is None else level, wbits=31)
        batch = bytearray(header + gzip.compress(plain) + gzip.flush())
    elif codec == CODEC_ZSTD:
        import zstandard
        zstd = zstandard.ZstdCompressor(level=3 if level is None else level)
        batch = bytearray(header + zstd.compress(plain))
    else:
        raise BatchError(BATCH_NO_CODEC)
    view = Borrowed(batch, True)
    batch_seal(view.p, len(batch), codec)
    return bytes(batch)
