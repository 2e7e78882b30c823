"""Records as a consumer's user sees them (see client_record.pxd)."""
cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int32_t, uint8_t

from kbroker.ext.batch cimport BATCH_NO_CODEC, RECORDS_OFFSET
from kbroker.ext.client_counted cimport memory_ref, memory_unref
from kbroker.ext.client_stream cimport (
    STREAM_CUT, Stream, stream_batch, stream_message, stream_plain, stream_record,
)
from kbroker.ext.record cimport Header, Record as RecordStruct, next_header
from kbroker.ext.unmade cimport not_by_hand

from kbroker.ext.records import BatchError, python_decompress

CREATE_TIME = 0
LOG_APPEND_TIME = 1


class FetchedBatchError(ValueError):
    """A batch that a broker sent and that cannot be read. `code` is ext's own, `offset` the base
    offset of the batch."""

    def __init__(self, code: int, topic: str, partition: int, offset: int) -> None:
        why = (<bytes> stream_message(code)).decode()
        super().__init__(f"{topic}-{partition} at offset {offset}: {why}")
        self.code = code
        self.topic = topic
        self.partition = partition
        self.offset = offset

    def __reduce__(self):
        return type(self), (self.code, self.topic, self.partition, self.offset)


@cython.final
@cython.no_gc
cdef class Source:
    def __dealloc__(self):
        memory_unref(self.memory)


cdef Source source_of(Stream* s, object topic, object partition):
    cdef Source source = Source.__new__(Source)
    source.memory = memory_ref(s.memory)
    source.topic = topic
    source.partition = partition
    source.leader_epoch = s.info.leader_epoch
    source.log_append_time = s.info.log_append_time
    return source


@cython.final
@cython.no_gc
@cython.freelist(1024)
cdef class Record:
    """A consumed record. It keeps the memory that it was fetched in (up to one answer of a broker)
    for as long as it lives: `detach()` where few records of many are kept for long.

    offset; timestamp: ms since 1970, -1 for none, see timestamp_type."""

    @property
    def topic(self) -> str:
        return self.source.topic

    @property
    def partition(self) -> int:
        return self.source.partition

    @property
    def key(self):
        """bytes, None for null, or what the consumer's key deserializer made of it."""
        if self.made_key is None and self.key_n >= 0 and self.key_p != NULL:
            self.made_key = PyBytes_FromStringAndSize(<const char*> self.key_p, self.key_n)
        return self.made_key

    @property
    def value(self):
        """bytes, None for null (a tombstone), or what the value deserializer made of it."""
        if self.made_value is None and self.value_n >= 0 and self.value_p != NULL:
            self.made_value = PyBytes_FromStringAndSize(<const char*> self.value_p, self.value_n)
        return self.made_value

    @property
    def headers(self) -> tuple:
        """(name, bytes or None) in order; a name that is no UTF-8 keeps its bytes as surrogates."""
        if self.made_headers is None:
            self.made_headers = headers_of(self.headers_p, self.end, self.header_count)
        return self.made_headers

    @property
    def timestamp_type(self) -> int:
        """CREATE_TIME (the producer's) or LOG_APPEND_TIME (the broker's)."""
        return LOG_APPEND_TIME if self.source.log_append_time else CREATE_TIME

    @property
    def leader_epoch(self) -> int | None:
        """Of the leader that took it, None where the broker did not say."""
        return self.source.leader_epoch if self.source.leader_epoch >= 0 else None

    @property
    def key_size(self) -> int:
        """Bytes of the key, -1 for null."""
        return self.key_n

    @property
    def value_size(self) -> int:
        """Bytes of the value, -1 for null."""
        return self.value_n

    def replace(self, *, key=..., value=..., headers=...) -> None:
        """Put other objects in the place of key, value or headers: for deserializers and
        interceptors."""
        if key is not ...:
            self.made_key = key
            self.key_p = NULL
        if value is not ...:
            self.made_value = value
            self.value_p = NULL
        if headers is not ...:
            self.made_headers = headers

    def detach(self) -> Record:
        """Give back the memory it was fetched in; returns itself. key, value and headers stay."""
        cdef Source old = self.source
        cdef Source source = Source.__new__(Source)
        source.topic = old.topic
        source.partition = old.partition
        source.leader_epoch = old.leader_epoch
        source.log_append_time = old.log_append_time
        _ = (self.key, self.value, self.headers)
        self.source = source
        self.key_p = self.value_p = self.headers_p = self.end = NULL
        return self

    def __repr__(self) -> str:
        return (
            f"Record(topic={self.topic!r}, partition={self.partition}, offset={self.offset},"
            f" timestamp={self.timestamp}, key={self.key!r}, value={self.value!r},"
            f" headers={self.headers!r})"
        )

    def __reduce__(self):
        return restored, (
            self.topic, self.partition, self.offset, self.timestamp, self.key, self.value,
            self.headers, self.source.leader_epoch, bool(self.source.log_append_time),
        )


def restored(
    topic: str, partition: int, offset: int, timestamp: int, key: object, value: object,
    headers: tuple, leader_epoch: int = -1, log_append_time: bool = False,
) -> Record:
    """A Record of given contents: for pickle and for tests of code that takes records."""
    cdef Source source = Source.__new__(Source)
    cdef Record record = Record.__new__(Record)
    source.topic = topic
    source.partition = partition
    source.leader_epoch = leader_epoch
    source.log_append_time = log_append_time
    record.source = source
    record.offset = offset
    record.timestamp = timestamp
    record.made_key = key
    record.made_value = value
    record.made_headers = tuple(headers)
    record.key_n = len(key) if isinstance(key, bytes) else -1
    record.value_n = len(value) if isinstance(value, bytes) else -1
    return record


cdef tuple headers_of(const uint8_t* p, const uint8_t* end, int32_t count):
    cdef Header header
    cdef list found = []
    for _ in range(count):
        p = next_header(p, end, &header)
        if p == NULL:
            raise ValueError(f"header {len(found)} of {count} is longer than its record")
        found.append((
            (<const char*> header.key.p)[:header.key.n].decode("utf-8", "surrogateescape")
            if header.key.n else "",
            (<const char*> header.value.p)[:header.value.n] if header.value.n > 0
            else (b"" if header.value.n == 0 else None),
        ))
    return tuple(found)


cdef Record record_of(Source source, const RecordStruct* r):
    cdef Record record = Record.__new__(Record)
    record.source = source
    record.offset = r.offset
    record.timestamp = r.timestamp
    record.key_p = r.key.p
    record.key_n = r.key.n
    record.value_p = r.value.p
    record.value_n = r.value.n
    record.headers_p = r.headers
    record.end = r.end
    record.header_count = r.header_count
    return record


cdef int open_next(Stream* s, object topic, object partition) except -1:
    cdef int code
    cdef bytes plain
    with nogil:
        code = stream_batch(s)
    if code == BATCH_NO_CODEC:
        packed = (<const char*> s.p)[RECORDS_OFFSET:s.info.length]
        try:
            plain = python_decompress(s.info.compression, packed, s.rules.limit)
        except BatchError as error:
            code = error.code
        else:
            code = stream_plain(s, plain, len(plain))
    if code < 0:
        offset = s.position if code == STREAM_CUT else s.info.base_offset
        raise FetchedBatchError(code, topic, partition, offset)
    return code


cdef Py_ssize_t records_take(Stream* s, Source source, list out, Py_ssize_t most) except -1:
    cdef RecordStruct r
    cdef Py_ssize_t taken = 0
    cdef int code
    while taken < most:
        code = stream_record(s, &r)
        if code == 0:
            break
        if code < 0:
            if taken:
                break                   # the next call finds it again
            raise FetchedBatchError(code, source.topic, source.partition, s.info.base_offset)
        out.append(record_of(source, &r))
        taken += 1
    return taken


not_by_hand(Source)
not_by_hand(Record)
