"""The client's reading of Fetch answers on bytes of a test."""
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdint cimport INT32_MAX, int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memset

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.client_column_store cimport STORE_FULL, Store, store_new, store_take
from kbroker.ext.client_columns cimport columns_of
from kbroker.ext.client_counted cimport Memory, memory_make, memory_unref
from kbroker.ext.client_fetch_scan cimport scan_more
from kbroker.ext.client_fetch_state cimport Scan
from kbroker.ext.client_fetch_wire cimport (
    FetchHead, FetchPart, get_head, get_part, get_topic,
)
from kbroker.ext.client_record cimport Source, open_next, records_take, source_of
from kbroker.ext.client_stream cimport (
    STREAM_RECORDS, Stream, StreamRules, stream_close, stream_open,
)
from kbroker.ext.endian cimport store_be64
from kbroker.ext.wire cimport Cursor, Slice, cursor_init, skip_tags

from kbroker.ext.client_record import FetchedBatchError


cdef void release(Memory* memory) noexcept nogil:
    with gil:
        Py_DECREF(<object> memory.owner)


cdef class Answer:
    """A Stream over the very bytes of a test, which every record holds."""
    cdef Stream stream
    cdef Borrowed view

    def __cinit__(
        self, data: bytes | bytearray | memoryview, position: int = 0, *, aborted: tuple = (),
        read_committed: bool = False, check_crcs: bool = True, limit: int = 1 << 20,
    ):
        cdef StreamRules rules
        cdef Memory* memory
        cdef uint8_t[1600] pairs
        cdef int32_t i
        rules.read_committed = read_committed
        rules.check_crcs = check_crcs
        rules.limit = limit
        for i in range(<int32_t> len(aborted)):
            store_be64(pairs + 16 * i, aborted[i][0])
            store_be64(pairs + 16 * i + 8, aborted[i][1])
        self.view = Borrowed(data)
        memory = memory_make(self.view.p, self.view.n, <void*> self.view, release)
        Py_INCREF(self.view)
        if memory == NULL or not stream_open(
            &self.stream, memory, self.view.p, self.view.p + self.view.n, position,
            pairs, <int32_t> len(aborted), 16, &rules,
        ):
            raise MemoryError
        memory_unref(memory)

    def __dealloc__(self):
        stream_close(&self.stream)

    @property
    def position(self) -> int:
        return self.stream.position

    def records(self, most: int = INT32_MAX) -> list:
        cdef list out = []
        cdef Source source
        while len(out) < most and open_next(&self.stream, "topic", 3) == STREAM_RECORDS:
            source = source_of(&self.stream, "topic", 3)
            records_take(&self.stream, source, out, most - len(out))
        return out

    def columns(self, most: int = INT32_MAX):
        cdef Store* store = store_new()
        cdef int64_t rows = most
        cdef int code
        made = columns_of(store, ["topic"])
        while store.rows < rows and open_next(&self.stream, "topic", 3) == STREAM_RECORDS:
            with nogil:
                code = store_take(store, &self.stream, 0, 3, rows)
            if code < 0:
                raise FetchedBatchError(code, "topic", 3, self.stream.info.base_offset)
            if code == STORE_FULL:
                break
        return made


def fetch_answer(data: bytes | bytearray | memoryview, version: int) -> list | None:
    """Partitions of a Fetch answer: (index, error, aborted transactions, bytes of records, leader
    as tagged); None: it is not one."""
    cdef Borrowed view = Borrowed(data)
    cdef int16_t of = version
    cdef Cursor c
    cdef FetchHead head
    cdef FetchPart told
    cdef Slice name
    cdef const uint8_t* topic_id
    cdef int32_t partitions
    cdef int64_t i
    found = []
    cursor_init(&c, view.p, view.n)
    get_head(&c, of, &head)
    while head.topics > 0 and not c.bad:
        get_topic(&c, of, &name, &topic_id, &partitions)
        while partitions > 0 and not c.bad:
            get_part(&c, of, &told)
            if not c.bad:
                sums = sum([told.aborted[i] for i in range(
                    max(0, told.aborted_count) * <int64_t> told.aborted_bytes
                )])
                sums += sum([told.records.p[i] for i in range(told.records.n)])
                found.append((
                    told.partition, told.error, told.aborted_count, told.records.n, told.leader,
                    sums,
                ))
            partitions -= 1
        if of >= 12:
            skip_tags(&c)
        head.topics -= 1
    if of >= 12:
        skip_tags(&c)
    return None if c.bad else found


def scanned(data: bytes | bytearray | memoryview, version: int, ends: list[int]) -> int:
    """An answer, its correlation id in front, which arrives up to each of `ends` in turn: where
    the last batch ends that was found good on the way; 0: nowhere."""
    cdef Borrowed view = Borrowed(data)
    cdef int16_t of = version
    cdef Scan scan
    memset(&scan, 0, sizeof(scan))
    for end in ends:
        scan_more(&scan, view.p, <size_t> min(<size_t> end, view.n), of)
    return scan.sound - view.p if scan.sound != NULL else 0
