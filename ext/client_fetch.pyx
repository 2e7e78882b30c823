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
    Chunk, Fetch, Part, chunk_remove, part_reset, part_take, taken_sound,
)
from kbroker.ext.client_record cimport Record, open_next, record_of, source_of
from kbroker.ext.client_stream cimport STREAM_RECORDS, Stream, stream_record
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.record cimport Record as RecordStruct

from kbroker.ext.client_columns import Columns
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
    """Returns what was fetched, in the order of arrival, of partitions that are not paused.

    `records` and `columns` move no position: that is done when `returned` is set. What they took
    for a call that ended otherwise, they return again. Iteration moves the position with each
    record."""

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
        if part.taken_position > part.truncated_to:
            part.taken_position = part.truncated_to
            part.taken_epoch = -1
        chunk_remove(self.fetch, chunk)
        pthread_mutex_unlock(&self.fetch.lock)
        self.wake_loop()

    cdef void settle(self, Chunk* chunk) noexcept nogil:
        """The position is behind what was read."""
        if chunk.stream.position == chunk.stream.start and chunk.part.position >= 0:
            return
        if self.holding:
            part_take(
                self.fetch, chunk.part, chunk.stream.position, chunk.stream.epoch,
                chunk.generation,
            )
        else:
            chunk.part.position = chunk.stream.position
            chunk.part.position_epoch = chunk.stream.epoch

    cdef inline void step(self, Part* part, int64_t position, int32_t epoch) noexcept nogil:
        """The position moves with a record of an iteration."""
        part.call = self.fetch.calls
        part.call_position = part.position
        part.call_epoch = part.position_epoch
        part.position = position
        part.position_epoch = epoch

    cdef void hold(self, Chunk* chunk) noexcept nogil:
        """The records up to the stream's position were taken."""
        cdef Part* part = chunk.part
        if part.taken:
            part.taken_position = chunk.stream.position
            part.taken_epoch = chunk.stream.epoch
            return
        pthread_mutex_lock(&self.fetch.lock)
        part_take(
            self.fetch, part, chunk.stream.position, chunk.stream.epoch, chunk.generation
        )
        pthread_mutex_unlock(&self.fetch.lock)

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
            if self.holding:
                self.hold(chunk)
            else:
                self.step(chunk.part, s.position, s.epoch)
            return record

    def records(self, most: int) -> list[Record]:
        """At most `most` records that have been fetched. Where one cannot be read, those before
        it come first."""
        cdef list found = []
        cdef Py_ssize_t wanted = most
        cdef Record record
        self.check_idle()
        self.fetch.calls += 1
        if self.is_kept(list, wanted):
            return self.taken
        self.holding = True
        self.taken = found
        try:
            while self.taken_count < wanted:
                record = self.take()
                if record is None:
                    break
                found.append(record)
                self.taken_count += 1
        except BaseException as error:
            if not found:
                self.note_returned()    # over what is no record
                if isinstance(error, FetchedBatchError):
                    self.refetch()
                raise
            if not isinstance(error, Exception):
                raise
        finally:
            self.holding = False
        if not found:
            self.note_returned()
        return found

    cdef bint is_kept(self, object kind, int64_t most) except -1:
        """True where `taken`, of a call that did not return it, is to be returned now."""
        if self.fetch.taken == NULL and not self.fetch.taken_lost:
            return False
        if type(self.taken) is kind and self.taken_count <= most and taken_sound(self.fetch):
            return True
        self.untake()
        return False

    def allow(self, most: int) -> Fetcher:
        """Itself, an iterator over at most so many of the records that have been fetched. What a
        call took and did not return is fetched again."""
        self.check_idle()
        self.is_kept(None, 0)
        self.budget = most
        return self

    def __iter__(self) -> Fetcher:
        return self

    def __next__(self) -> Record:
        cdef Record record
        if self.budget <= 0:
            raise StopIteration
        self.fetch.calls += 1
        if self.fetch.taken != NULL:    # by a call between two records, which did not return it
            self.untake()
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
        self.fetch.calls += 1
        if self.is_kept(Columns, rows):
            return self.taken
        store = store_new()
        if store == NULL:
            raise MemoryError
        self.busy = self.holding = True
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
                    self.hold(chunk)
                if code < 0:
                    raise FetchedBatchError(
                        code, self.source.topic, self.source.partition,
                        chunk.stream.info.base_offset,
                    )
        except BaseException as error:
            if store.rows == 0 or not isinstance(error, FetchedBatchError):
                self.columns_failed(store, error)
                raise
        finally:
            self.busy = self.holding = False
        self.taken_count = store.rows
        self.taken = columns_of(store, list(places))
        if store.rows == 0:
            taken = self.taken
            self.note_returned()
            return taken
        return self.taken

    cdef int columns_failed(self, Store* store, object error) except -1:
        """What was taken into the store is fetched again."""
        cdef bint empty = store.rows == 0
        store_unref(store)
        self.busy = self.holding = False
        if not empty:
            self.untake()
            return 0
        self.note_returned()            # over what is no record
        if isinstance(error, FetchedBatchError):
            self.refetch()
        return 0

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
