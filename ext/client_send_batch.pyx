"""send_batch() (see client_send_batch.pxd)."""
cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.number cimport PyIndex_Check
from cpython.object cimport PyObject
from libc.stdlib cimport free, realloc
from libc.string cimport memset

from kbroker.ext.client_accumulator cimport (
    accumulator_append_run, accumulator_flush, accumulator_flushed, accumulator_kick,
    accumulator_partition,
)
from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.client_columns_in cimport (
    COLUMN_NONE, COLUMN_OBJECTS, column_int, column_null, column_of_bytes, column_of_headers,
    column_of_ints, column_slice, columns_of_batch, unchunked,
)
from kbroker.ext.client_delivery cimport batch_delivery_new
from kbroker.ext.client_memory cimport MEMORY_INTERRUPTED, MEMORY_TIMEOUT, memory_ease
from kbroker.ext.client_headers cimport bytes_slice
from kbroker.ext.client_producer cimport raise_signal
from kbroker.ext.clock cimport monotonic_ns, realtime_ms
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.wire cimport Slice

cdef enum:
    LOOK_NS = 100000000             # a wait looks for Ctrl-C so often


cdef bint is_index(object given):
    """A number, of numpy's as well; its arrays of one have an index and are columns."""
    return PyIndex_Check(given) and not hasattr(given, "__len__")


cdef inline object slice_bytes(Slice s):
    return (<const char*> s.p)[:s.n] if s.n >= 0 else None


cdef class ColumnsIn:
    def __cinit__(self) -> None:
        self.held = []
        self.partition = -1
        self.count = -1

    def __dealloc__(self) -> None:
        free(self.room)
        free(self.last)

    cdef int set(self, str field, object given) except -1:
        cdef ColumnIn column
        cdef bint ints = field in ("timestamp", "partition")
        if given is None and field != "value":
            return 0
        given = unchunked(given, field)
        if isinstance(given, ColumnIn):
            column = given
        elif ints:
            column = column_of_ints(given, field)
        elif field == "headers" and isinstance(given, (list, tuple)):
            column = ColumnIn.__new__(ColumnIn)
            column.held = given
            column.c.kind = COLUMN_OBJECTS
            column.c.length = len(given)
        elif field == "headers":
            column = column_of_headers(given)
        else:
            column = column_of_bytes(given, field)
        if self.count >= 0 and column.c.length != self.count:
            raise ValueError(f"{field}: {column.c.length} where there are {self.count} values")
        if field == "value":
            self.values = column
            self.count = column.c.length
        elif field == "key":
            self.keys = column
        elif field == "headers":
            self.headers = column
        elif field == "timestamp":
            self.times = column
        else:
            self.partitions = column
        return 0

    cdef int fill_bytes(self, ColumnIn column, int64_t start, int32_t n, bint keys) except -1:
        cdef PyObject* item
        cdef Slice s
        cdef int32_t i
        cdef bint objects = column.c.kind == COLUMN_OBJECTS
        for i in range(n):
            if objects:
                item = column.item(start + i)
                if type(<object> item) is bytes:
                    self.held.append(<object> item)
                elif <object> item is not None:
                    if not isinstance(<object> item, (bytes, bytearray, memoryview)):
                        raise TypeError(
                            f"{'key' if keys else 'value'} {start + i}:"
                            f" {type(<object> item).__name__} is not bytes"
                        )
                    made = bytes(<object> item)
                    self.held.append(made)
                    item = <PyObject*> made
                s = bytes_slice(<object> item)
            else:
                s = column_slice(&column.c, start + i)
            if keys:
                self.recs[i].key = s
            else:
                self.recs[i].value = s
        return 0

    cdef int fill_headers(self, int64_t start, int32_t n) except -1:
        cdef HeadersIn each
        cdef PyObject* item
        cdef int32_t i
        if self.headers.c.kind == COLUMN_NONE:
            return 0
        if self.headers.c.kind != COLUMN_OBJECTS:
            return self.fill_arrow_headers(start, n)
        for i in range(n):
            item = self.headers.item(start + i)
            if <object> item is not None:
                each = HeadersIn(<object> item)
                self.held.append(each)
                self.recs[i].headers = each.headers
                self.recs[i].header_count = each.count
        return 0

    cdef int fill_arrow_headers(self, int64_t start, int32_t n) except -1:
        cdef int64_t total = 0
        cdef int64_t at = 0
        cdef int64_t first = 0
        cdef int32_t i, k
        cdef void* grown
        if self.headers.keys is None:
            raise TypeError("headers: give map<utf8, binary> or list<struct<key, value>>")
        for i in range(n):
            total += self.headers.headers_of(start + i, &first)
        if total > self.room_count:
            grown = realloc(self.room, sizeof(Header) * total)
            if grown == NULL:
                raise MemoryError
            self.room = <Header*> grown
            self.room_count = total
        for i in range(n):
            self.recs[i].headers = self.room + at
            self.recs[i].header_count = self.headers.headers_of(start + i, &first)
            for k in range(self.recs[i].header_count):
                self.room[at].key = column_slice(&self.headers.keys.c, first + k)
                self.room[at].value = column_slice(&self.headers.values.c, first + k)
                if self.room[at].key.n < 0:
                    raise ValueError(f"headers {start + i}: a header needs a name")
                at += 1
        return 0

    cdef int fill(self, int64_t start, int32_t n) except -1:
        """The records start..start+n of the columns into the chunk."""
        cdef int32_t i
        cdef int64_t time
        self.held.clear()
        for i in range(n):
            self.recs[i].headers = NULL
            self.recs[i].header_count = 0
            self.recs[i].key.p = NULL
            self.recs[i].key.n = -1
            self.recs[i].timestamp = self.now_ms
        self.fill_bytes(self.values, start, n, False)
        if self.keys is not None:
            self.fill_bytes(self.keys, start, n, True)
        if self.headers is not None:
            self.fill_headers(start, n)
        if self.times is not None:
            for i in range(n):
                if column_null(&self.times.c, start + i):
                    continue
                time = column_int(&self.times.c, start + i)
                if time < 0:
                    raise ValueError(f"timestamp {start + i}: {time} ms lies before 1970")
                self.recs[i].timestamp = time
        return 0

    cdef int32_t* last_of(self, int32_t partition) except NULL nogil:
        """Partitions are added to a topic at any time, so that there is no number of them to
        begin with."""
        cdef int32_t room = 2 * partition + 8
        cdef int32_t* grown
        if partition >= self.last_count:
            grown = <int32_t*> realloc(self.last, sizeof(int32_t) * <size_t> room)
            if grown == NULL:
                with gil:
                    raise MemoryError
            memset(
                grown + self.last_count, 0xFF, sizeof(int32_t) * <size_t> (room - self.last_count)
            )
            self.last = grown
            self.last_count = room
        return &self.last[partition]


cdef class ProducerCore(ProducerBase):
    """ProducerBase with send_batch()."""

    cdef int place(self, ColumnsIn columns, Topic* t, int32_t n) except -1:
        """A partition for each record of the chunk, -1 for the sticky one."""
        cdef int32_t i
        for i in range(n):
            columns.places[i] = columns.partition
            if columns.partition < 0:
                columns.places[i] = accumulator_partition(
                    self.a, t, columns.recs[i].key.p, columns.recs[i].key.n
                )
        return 0

    def _flush(self, deadline_ns: int) -> bool:
        """Waits without the GIL for the outcome of what was sent before; False: not by then."""
        cdef int64_t began_ns = monotonic_ns()
        cdef int64_t until_ns = deadline_ns
        cdef int64_t serial = accumulator_flush(self.a)
        cdef int64_t slice_ns = 0
        cdef bint yields = in_greenlet()
        cdef bint done
        while True:
            if not yields:
                slice_ns = min(until_ns, monotonic_ns() + LOOK_NS)
            with nogil:
                done = accumulator_flushed(self.a, serial, slice_ns)
            if done:
                return True
            PyErr_CheckSignals()
            if monotonic_ns() >= until_ns:
                return False
            if yields:
                rest(began_ns, until_ns)

    cdef int append_chunk(
        self, ColumnsIn columns, Topic* t, int32_t n, int64_t wait_ns
    ) except? -1:
        """APPEND_OK, or why it ended before the chunk did."""
        cdef int64_t began_ns = monotonic_ns()
        cdef int64_t deadline_ns = began_ns + wait_ns
        cdef bint yields = in_greenlet()
        cdef int32_t done = 0
        cdef int32_t end, index, taken
        cdef ClientBatch* b
        with nogil:
            while done < n:
                if not yields and \
                        memory_ease(&self.a.pool, deadline_ns) == MEMORY_INTERRUPTED:
                    return MEMORY_INTERRUPTED
                end = done + 1
                while end < n and columns.places[end] == columns.places[done]:
                    end += 1
                taken = accumulator_append_run(
                    self.a, t, columns.places[done], &columns.recs[done], end - done, 0, &b,
                    &index,
                )
                if taken == MEMORY_TIMEOUT:
                    accumulator_kick(self.a, True)
                    if yields and monotonic_ns() < deadline_ns:
                        with gil:
                            rest(began_ns, deadline_ns)
                        continue
                    taken = accumulator_append_run(
                        self.a, t, columns.places[done], &columns.recs[done], end - done,
                        deadline_ns, &b, &index,
                    )
                if taken < 0:
                    return taken
                columns.delivery.add(b, index, taken, columns.last_of(b.partition))
                done += taken
        return 0

    @cython.binding(False)
    def send_batch(
        self, topic: object, values: object, keys: object = None, headers: object = None,
        timestamps_ms: object = None, partition: object = None,
    ) -> BatchDelivery:
        """Takes many records of a topic; see client_columns_in for what columns may be.

        values: bytes or None in a sequence, a numpy array, an Arrow array; or an Arrow RecordBatch
        or Table with the columns value and, where they are wanted, key, headers, timestamp,
        partition. Chunks of Arrow are combined, which copies them where there are several.
        headers: a list of what send() takes, or an Arrow column. partition: one for all, or a
        column. Waits for memory at most max.block.ms at a time. Where it raises in the middle,
        what was taken before is sent; the exception's `delivery` is the future of that.
        Serializers and interceptors are not asked; a callable partitioner is, for each record.
        """
        cdef ColumnsIn columns = self._begin_batch(
            topic, values, keys, headers, timestamps_ms, partition
        )
        while self._take_chunk(columns, self.max_block_ns) is None:
            pass
        return columns.delivery

    def _begin_batch(
        self, topic: object, values: object, keys: object, headers: object,
        timestamps_ms: object, partition: object,
    ) -> ColumnsIn:
        """send_batch() before it takes records."""
        cdef ColumnsIn columns = ColumnsIn.__new__(ColumnsIn)
        columns.delivery = batch_delivery_new()
        self.check()
        self.find_topic(topic)
        topic = self.last_name
        for field, given in self._columns(topic, values, keys, headers, timestamps_ms, partition):
            columns.set(field, given)
        if is_index(partition):
            columns.partition = self._checked_partition(topic, partition)
        columns.now_ms = realtime_ms()
        columns.topic = columns.delivery.topic = topic
        return columns

    def _take_chunk(self, ColumnsIn columns not None, wait_ns: int) -> BatchDelivery | None:
        """Takes the next records, waiting so long for memory; None: there are more."""
        cdef int32_t n = <int32_t> min(columns.count - columns.start, <int64_t> CHUNK_RECORDS)
        cdef Topic* t = self.driver.topic(columns.topic)
        cdef int code
        if n <= 0:
            return columns.delivery
        try:
            columns.fill(columns.start, n)
            self.place_all(columns, columns.topic, columns.start, n)
            PyErr_CheckSignals()
            code = self.append_chunk(columns, t, n, wait_ns)
            if code == MEMORY_INTERRUPTED:
                raise_signal()
            if code < 0:
                self.append_failed(code, columns.topic, -1)
            columns.start += n
        except BaseException as error:
            error.delivery = columns.delivery
            raise
        finally:
            columns.held.clear()
        return columns.delivery if columns.start >= columns.count else None

    def place_all(self, ColumnsIn columns, topic: str, start: int, n: int) -> None:
        """Of a chunk, where a column or Python may say it."""
        cdef Topic* t = self.driver.topic(topic)
        cdef bint asks = self._partitioner is not None and columns.partition < 0
        cdef int32_t i
        if not asks:
            self.place(columns, t, n)
        for i in range(<int32_t> n if asks or columns.partitions is not None else 0):
            if columns.partitions is not None and not column_null(
                &columns.partitions.c, start + i
            ):
                columns.places[i] = self._checked_partition(
                    topic, column_int(&columns.partitions.c, start + i)
                )
            elif asks:
                columns.places[i] = self._chosen_partition(
                    topic, slice_bytes(columns.recs[i].key), slice_bytes(columns.recs[i].value)
                )

    def _columns(
        self, topic: str, values: object, keys: object, headers: object, times: object,
        partition: object,
    ) -> list[tuple[str, object]]:
        """(field, column or what makes one), the values first."""
        cdef dict found
        values = unchunked(values, "value")
        found = columns_of_batch(values)
        if found is not None:
            if "value" not in found:
                raise ValueError("values: the batch has no column named value")
            values = found.pop("value")
            for name, given in (("key", keys), ("headers", headers), ("timestamp", times),
                                ("partition", partition)):
                if given is not None and name in found:
                    raise ValueError(f"{name}: the batch has a column of that name as well")
        given = {"key": keys, "headers": headers, "timestamp": times}
        if not is_index(partition):
            given["partition"] = partition
        given.update(found or {})
        return [("value", values), *given.items()]
