"""Fetcher: what a consumer has fetched, as records and as columns.

Decoding is done on the thread that asks, without the GIL but for the objects themselves. What is
assigned, and the other two threads, are FetchParts'.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_column_store cimport (
    STORE_FULL, Store, store_forget_cached, store_new, store_take, store_unref,
)
from kbroker.ext.client_columns cimport columns_of
from kbroker.ext.client_fetch_parts cimport FetchParts
from kbroker.ext.client_fetch_state cimport (
    Chunk, Fetch, Part, chunk_remove, part_reset,
)
from kbroker.ext.client_record cimport Record, open_next, record_of, source_of
from kbroker.ext.client_stream cimport STREAM_RECORDS, Stream, stream_record
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.record cimport Record as RecordStruct

from kbroker.ext.client_record import FetchedBatchError

cdef extern from * nogil:
    void __builtin_prefetch(const void* at) noexcept

cdef enum:
    LINE_BYTES = 64
    AHEAD_BYTES_MAX = 1024


cdef inline void fetch_ahead(const uint8_t* end, int64_t n) noexcept nogil:
    """The record behind `end`, which is probably as long as this one: another core summed it, and
    while Python looks at this one it comes over. Beyond the memory it does nothing."""
    cdef int64_t i = 0
    while i < n and i < AHEAD_BYTES_MAX:
        __builtin_prefetch(<const void*> (<size_t> end + <size_t> i))
        i += LINE_BYTES


cdef class Fetcher(FetchParts):
    """Gives out what was fetched, in the order of arrival, of partitions that are not paused."""

    cdef void finish(self, Chunk* chunk):
        cdef bint asks
        self.open_chunk = NULL
        self.source = None
        pthread_mutex_lock(&self.fetch.lock)
        self.settle(chunk)
        asks = chunk.part.flight_link < 0 or self.fetch.held
        chunk_remove(self.fetch, chunk)
        pthread_mutex_unlock(&self.fetch.lock)
        if asks:
            self.wake_loop()

    cdef void drop(self, Chunk* chunk):
        """Of a log that was truncated."""
        cdef Part* part = chunk.part
        self.source = None
        pthread_mutex_lock(&self.fetch.lock)
        if part.position > part.truncated_to:
            part.position = part.truncated_to
            part.position_epoch = -1
        chunk_remove(self.fetch, chunk)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    cdef void settle(self, Chunk* chunk) noexcept nogil:
        """The position is behind what was read."""
        if chunk.stream.position != chunk.stream.start or chunk.part.position < 0:
            chunk.part.position = chunk.stream.position
            chunk.part.position_epoch = chunk.stream.epoch

    cdef Chunk* pick(self) except? NULL:
        """A chunk with an open batch; NULL: nothing is there. Raises FetchedBatchError."""
        cdef Chunk* chunk
        while True:
            pthread_mutex_lock(&self.fetch.lock)
            chunk = self.ready()
            pthread_mutex_unlock(&self.fetch.lock)
            if chunk == NULL:
                return NULL
            if chunk == self.open_chunk and chunk.stream.cursor.left > 0:
                return chunk
            self.open_chunk = NULL
            if chunk.generation < chunk.part.sound_from:
                self.drop(chunk)
                continue
            name = self.names[chunk.part.topic.index]
            partition = chunk.part.partition
            if open_next(&chunk.stream, name, partition) == STREAM_RECORDS:
                self.open_chunk = chunk
                self.source = source_of(&chunk.stream, name, partition)
                return chunk
            self.finish(chunk)

    cdef int refetch(self) except -1:
        """What cannot be read is asked for again: it may have been damaged on the way."""
        cdef Chunk* chunk
        cdef Part* part
        pthread_mutex_lock(&self.fetch.lock)
        chunk = self.ready()
        if chunk != NULL:
            part = chunk.part
            self.open_chunk = NULL
            self.settle(chunk)
            part_reset(self.fetch, part, part.position, part.position_epoch)
        pthread_mutex_unlock(&self.fetch.lock)
        self.source = None
        self.wake_loop()
        return 0

    cdef Record take(self):
        """The next record; None: nothing is there. Raises FetchedBatchError, and what `convert`
        raises: then the position stays before the record."""
        self.check_idle()
        self.busy = True
        try:
            return self.take_next()
        finally:
            self.busy = False

    cdef Record take_next(self):
        cdef RecordStruct r
        cdef Chunk* chunk
        cdef Stream* s
        cdef Record record
        cdef const uint8_t* at
        cdef int code
        while True:
            chunk = self.open_chunk
            if chunk == NULL or chunk.stream.cursor.left <= 0 or (
                chunk.part.paused or chunk.part.stopped
            ):
                chunk = self.pick()
                if chunk == NULL:
                    return None
            s = &chunk.stream
            at = s.cursor.p
            code = stream_record(s, &r)
            if code == 0:
                continue
            if code < 0:
                raise FetchedBatchError(
                    code, self.source.topic, self.source.partition, s.info.base_offset
                )
            fetch_ahead(r.end, r.end - at)
            record = record_of(self.source, &r)
            if self.convert is not None:
                try:
                    self.convert(record)
                except BaseException:
                    s.cursor.p = at
                    s.cursor.left += 1
                    s.position = r.offset
                    raise
            chunk.part.position = s.position
            chunk.part.position_epoch = s.epoch
            return record

    def records(self, most: int) -> list[Record]:
        """At most `most` records that have been fetched. Where one cannot be read, those before
        it come first."""
        cdef list found = []
        cdef Py_ssize_t wanted = most
        cdef Py_ssize_t count = 0
        cdef Record record
        while count < wanted:
            try:
                record = self.take()
            except BaseException as error:
                if found and isinstance(error, Exception):
                    break
                if isinstance(error, FetchedBatchError):
                    self.refetch()
                raise
            if record is None:
                break
            found.append(record)
            count += 1
        self.given += count
        return found

    def allow(self, most: int) -> Fetcher:
        """Itself, an iterator over at most so many of the records that have been fetched."""
        self.budget = most
        return self

    def __iter__(self) -> Fetcher:
        return self

    def __next__(self) -> Record:
        cdef Record record
        if self.budget <= 0:
            raise StopIteration
        try:
            record = self.take()
        except FetchedBatchError:
            self.refetch()
            raise
        if record is None:
            raise StopIteration
        self.budget -= 1
        self.given += 1
        return record

    def columns(self, most: int, bytes_wanted: int):
        """As `records`, as Columns of no more than one batch beyond `bytes_wanted` of keys and
        values; deserializers are not asked."""
        cdef Store* store
        cdef Chunk* chunk
        cdef int64_t rows = most
        cdef int64_t enough = bytes_wanted
        cdef int64_t before = 0
        cdef dict places = {}
        cdef int32_t place
        cdef int code = 0
        self.check_idle()
        store = store_new()
        if store == NULL:
            raise MemoryError
        self.busy = True
        try:
            while (
                store.rows < rows and code != STORE_FULL
                and store.key.n + store.value.n < enough
            ):
                chunk = self.pick()
                if chunk == NULL:
                    break
                place = places.setdefault(self.source.topic, len(places))
                with nogil:
                    code = store_take(store, &chunk.stream, place, chunk.part.partition, rows)
                if store.rows > before:
                    before = store.rows
                    chunk.part.position = chunk.stream.position
                    chunk.part.position_epoch = chunk.stream.epoch
                if code < 0:
                    raise FetchedBatchError(
                        code, self.source.topic, self.source.partition,
                        chunk.stream.info.base_offset,
                    )
        except BaseException as error:
            if store.rows == 0 or not isinstance(error, FetchedBatchError):
                store_unref(store)
                if isinstance(error, FetchedBatchError):
                    self.refetch()
                raise
        finally:
            self.busy = False
        self.given += store.rows
        return columns_of(store, list(places))

    # ---- metrics, end

    def stats(self) -> dict[str, int]:
        """Sums since the beginning; times in ns, sizes in bytes."""
        cdef Fetch* f = self.fetch
        return {
            "requests": f.requests,
            "answers": f.answers,
            "fetched_bytes": f.bytes,
            "latency_ns_sum": f.latency_ns_sum,
            "latency_ns_max": f.latency_ns_max,
            "throttle_ms": f.throttle_ms,
            "records": self.given,
            "queued_bytes": f.queued,
        }

    def clear(self) -> None:
        """After the loop has ended: every partition and all that is queued goes; with the fetcher
        itself where a thread that the interpreter leaves behind is taking records."""
        if self.busy:
            return
        for topic, partition in list(self.parts):
            self.remove(topic, partition)
        store_forget_cached()
