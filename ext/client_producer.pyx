"""The producer as Python sees it (see client_producer.pxd)."""
import time

cimport cython
from cpython.bytes cimport PyBytes_AS_STRING
from cpython.number cimport PyIndex_Check, PyNumber_Index
from libc.stdint cimport int16_t
from libc.string cimport memcmp, memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_exchange_i32, atomic_load_i32, atomic_load_i64, atomic_load_relaxed_i64,
    atomic_store_i32,
)
from kbroker.ext.client_accumulator cimport (
    APPEND_CLOSED, APPEND_OK, APPEND_TOO_LARGE, Settings, accumulator_append, accumulator_close,
    accumulator_destroy, accumulator_init, accumulator_kick,
    accumulator_partition, accumulator_pending, accumulator_topic,
)
from kbroker.ext.client_topic cimport Part, topic_grow
from kbroker.ext.client_batch cimport ClientBatch, batch_root, batch_unref, fork_generation
from kbroker.ext.client_delivery cimport delivery_new, run_callbacks
from kbroker.ext.client_headers cimport HeadersIn, bytes_of, bytes_slice, checked_time, plain_name
from kbroker.ext.client_thread cimport loop_wake
from kbroker.ext.client_link cimport Loop
from kbroker.ext.client_memory cimport (
    MEMORY_CLOSED, MEMORY_INTERRUPTED, MEMORY_TIMEOUT, MemoryPool, memory_init,
)
from kbroker.ext.client_peers cimport (
    Peer, RETRIABLE_CODES, sender_destroy, sender_init, sender_peer, settled_take,
)
from kbroker.ext.client_sender cimport sender_drive, sender_link_down, sender_stopped
from kbroker.ext.client_unasked cimport unasked_new
from kbroker.ext.clock cimport monotonic_ns, realtime_ms
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock

from kbroker.ext.client_flag import Flag

cdef extern from "Python.h":
    # Not cpython.exc's, by which what a signal handler raised would be raised at once.
    int PyErr_CheckSignals() nogil

cdef enum:
    MS = 1000000                    # ns

REST_S = 0.01                       # a wait for callbacks looks again so often
cdef double PURGE_PAUSE_S = 0.0002       # a wait for the loop to have purged
cdef int64_t PURGE_NS = 1_000_000_000   # and how long; a loop that has ended never does


cdef void wake_loop(void* owner) noexcept nogil:
    loop_wake((<Loop**> owner)[0])


cdef bint has_batches(Topic* t) noexcept nogil:
    cdef int32_t i
    for i in range(t.count):
        if t.parts[i].listed:
            return True
    return False


cdef class TopicRef:
    pass


cdef class SenderDriver(LoopDriver):
    """settings: batch_bytes, linger_ms ... (see __cinit__); retriable: error codes."""

    def __cinit__(
        self, *, batch_bytes: int, buffer_bytes: int, linger_ms: int, delivery_ms: int,
        request_timeout_ms: int, request_bytes_max: int, retry_ms: int, retry_max_ms: int,
        retries: int, in_flight_max: int, acks: int, idempotent: bool, codec: int, level: int,
        way: int, adaptive: bool, availability_ms: int, ignore_keys: bool, retriable: list[int],
    ) -> None:
        cdef Settings settings
        memset(&settings, 0, sizeof(settings))
        settings.batch_bytes = max(batch_bytes, 1)
        settings.linger_ns = linger_ms * MS
        settings.delivery_ns = delivery_ms * MS
        settings.request_timeout_ns = request_timeout_ms * MS
        settings.request_bytes_max = request_bytes_max
        settings.retry_ns = retry_ms * MS
        settings.retry_max_ns = retry_max_ms * MS
        settings.retries = retries
        settings.in_flight_max = in_flight_max
        settings.acks = acks
        settings.idempotent = idempotent
        settings.codec = codec
        settings.level = level
        settings.way = way
        settings.adaptive = adaptive
        settings.availability_ns = availability_ms * MS
        settings.ignore_keys = ignore_keys
        self.topics = {}
        self.rested = Flag()
        self.unasked = unasked_new()
        accumulator_init(&self.a, &settings)
        memory_init(&self.a.pool, buffer_bytes, settings.batch_bytes)
        sender_init(&self.s, &self.a, &self.driver)
        self.a.pool.interrupted = signal_raised
        self.a.wake = wake_loop
        self.a.wake_owner = &self.driver.loop
        self.driver.self = &self.s
        self.driver.drive = sender_drive
        self.driver.link_down = sender_link_down
        self.driver.stopped = sender_stopped
        for code in retriable:
            if 0 <= code < RETRIABLE_CODES:
                self.s.retriable[<int> code] = 1

    def __dealloc__(self) -> None:
        cdef ClientBatch* b = settled_take(&self.s)
        while b != NULL:
            if b.unseen:
                batch_unref(batch_root(b))
            else:
                run_callbacks(b)
            b = settled_take(&self.s)
        sender_destroy(&self.s)
        accumulator_destroy(&self.a)

    cdef Topic* topic(self, str name) except? NULL:
        """NULL without an exception where Python has not told of it."""
        cdef TopicRef found = self.topics.get(name)
        return found.topic if found is not None else NULL

    # ---- what the control thread tells

    def set_topic(self, name: str, topic_id: bytes, leaders: list[tuple[int, int]]) -> None:
        """leaders: (node id or -1, leader epoch or -1) of each partition in order."""
        cdef Topic* t = self.topic(name)
        cdef TopicRef made
        cdef bytes text
        cdef Part* part
        cdef int32_t i, node, epoch
        cdef bint anew = False
        if t == NULL:
            text = name.encode()
            t = accumulator_topic(&self.a, <const uint8_t*> PyBytes_AS_STRING(text), len(text))
            if t == NULL:
                raise MemoryError
            made = TopicRef.__new__(TopicRef)
            made.topic = t
            self.topics[name] = made
        if not topic_grow(t, len(leaders)):
            raise MemoryError
        if len(topic_id) == 16 and any(topic_id):
            pthread_mutex_lock(&self.a.lock)
            anew = t.has_id and memcmp(t.id, PyBytes_AS_STRING(topic_id), 16) != 0
            memcpy(t.id, PyBytes_AS_STRING(topic_id), 16)
            t.has_id = True
            pthread_mutex_unlock(&self.a.lock)
        for i in range(<int32_t> len(leaders)):
            node, epoch = leaders[i]
            part = t.parts[i]
            # A leader from KIP-951 may be newer than metadata, unless the topic was re-created.
            if anew or epoch < 0 or epoch >= atomic_load_i32(&part.leader_epoch):
                atomic_store_i32(&part.leader, node)
                atomic_store_i32(&part.leader_epoch, epoch)
        accumulator_kick(&self.a, True)

    def set_link(self, node: int, link: int, version: int) -> None:
        """The link to a broker (-1: none) and the version of Produce on it."""
        cdef Peer* peer = sender_peer(&self.s, node)
        if peer == NULL:
            raise MemoryError("too many brokers")
        peer.version = version
        peer.drop = False
        atomic_store_i32(&peer.link, link)
        accumulator_kick(&self.a, True)

    def set_producer_id(self, producer_id: int, epoch: int, error: int = 0) -> None:
        """Set the response of InitProducerId; error: a fatal code in its place."""
        cdef int64_t new_id = producer_id
        cdef int16_t new_epoch = epoch, fatal_code = error
        pthread_mutex_lock(&self.a.lock)
        self.s.told_producer_id = new_id
        self.s.told_producer_epoch = new_epoch
        self.s.told_error = fatal_code
        self.s.told = True
        pthread_mutex_unlock(&self.a.lock)
        accumulator_kick(&self.a, True)

    # ---- what it asks

    def wishes(self) -> int:
        """WISH_* that came since; the next one posts EVENT_SENDER again."""
        atomic_store_i32(&self.s.event_posted, 0)
        return atomic_exchange_i32(&self.s.wishes, 0)

    def leaders_wanted(self) -> set[int]:
        """Node ids of brokers that lead partitions of known topics."""
        cdef TopicRef each
        cdef int32_t i
        found = set()
        for each in self.topics.values():
            for i in range(each.topic.count):
                found.add(atomic_load_i32(&each.topic.parts[i].leader))
        found.discard(-1)
        return found

    def links(self) -> dict[int, int]:
        """Node id -> link of the brokers that have one."""
        cdef int32_t i
        return {
            self.s.peers[i].node: atomic_load_i32(&self.s.peers[i].link)
            for i in range(self.s.peers_count)
            if atomic_load_i32(&self.s.peers[i].link) >= 0
        }

    def lying_links(self) -> list[int]:
        """Links whose broker sent an answer that is none."""
        cdef int32_t i
        return [
            atomic_load_i32(&self.s.peers[i].link)
            for i in range(self.s.peers_count)
            if self.s.peers[i].drop and atomic_load_i32(&self.s.peers[i].link) >= 0
        ]

    def run_callbacks(self) -> None:
        """Of all whose outcome is known by now, in their order. Failures that nobody can ask about
        are told of."""
        cdef ClientBatch* b
        cdef ClientBatch* last = self.s.settled_tail   # what settles meanwhile can wait
        self.running += 1
        try:
            b = settled_take(&self.s)
            while b != NULL:
                if b.unseen:
                    self.unasked.put(b)
                else:
                    run_callbacks(b)
                b = settled_take(&self.s) if b != last else <ClientBatch*> NULL
            self.unasked.tell()
        finally:
            self.running -= 1
            self.rested.set()

    def wait_callbacks(self, deadline_ns: int) -> bool:
        """Waits until those of all outcomes known by now have run; False: not by then."""
        while self.running > 0 or self.s.settled != NULL:
            if monotonic_ns() >= deadline_ns:
                return False
            self.rested.clear()
            self.rested.wait(REST_S)
        return True

    def topic_names(self, idle_s: float) -> list[str]:
        """Topics that were sent to within so long, or that records still wait for."""
        cdef TopicRef each
        cdef int64_t since_ns = monotonic_ns() - <int64_t> (min(idle_s, 1e9) * 1e9)
        return [
            name for name, each in list(self.topics.items())
            if each.topic.used_ns >= since_ns or has_batches(each.topic)
        ]

    @property
    def fatal_code(self) -> int:
        """Kafka's error after which nothing can be sent any more; 0: none."""
        return atomic_load_i32(&self.s.fatal_code)

    def purge(self, queued: bool, in_flight: bool) -> None:
        """Give up what waits, and what is on its way. It is done at the return, so that it takes
        nothing that is sent afterwards; unless the loop has ended."""
        cdef int64_t mine, deadline_ns = monotonic_ns() + PURGE_NS
        pthread_mutex_lock(&self.a.lock)
        self.s.purge_queued |= queued
        self.s.purge_flying |= in_flight
        self.s.purges_asked += 1
        mine = self.s.purges_asked
        pthread_mutex_unlock(&self.a.lock)
        accumulator_kick(&self.a, True)
        while atomic_load_i64(&self.s.purges_done) < mine and monotonic_ns() < deadline_ns:
            time.sleep(PURGE_PAUSE_S)

    def totals(self) -> dict[str, int]:
        """Return counters since the start, see `Totals`, and what is in memory now."""
        cdef int64_t* values = <int64_t*> &self.a.totals
        names = ("records record_bytes batches requests request_bytes retries errors splits "
                 "throttle_ms latency_ns latency_ns_max acked").split()
        cdef MemoryPool pool
        pthread_mutex_lock(&self.a.pool.lock)
        pool = self.a.pool
        pthread_mutex_unlock(&self.a.pool.lock)
        found = {name: atomic_load_relaxed_i64(&values[i]) for i, name in enumerate(names)}
        return found | {
            "memory_available": pool.available, "memory_total": pool.bytes_max,
            "memory_waits": pool.waits, "memory_wait_ns": pool.wait_ns,
            "memory_waiting": pool.waiting, "batches_waiting": accumulator_pending(&self.a),
        }


cdef bint signal_raised() noexcept nogil:
    with gil:
        return PyErr_CheckSignals() < 0


cdef int raise_signal() except -1:
    return -1


cdef class ProducerBase:
    """What Producer is made of; kbroker.client.producer has the rest."""

    def __cinit__(self, *_args: object, **_more: object) -> None:
        self.ended = True

    def _set_up(self, driver: SenderDriver, max_block_ms: int, plain: bool) -> None:
        self.driver = driver
        self.a = &driver.a
        self.max_block_ns = max_block_ms * MS
        self.generation = fork_generation()
        self.plain = plain
        self.ended = False

    cdef int check(self) except -1:
        cdef bint forked = self.generation != fork_generation()
        if forked or self.ended:
            raise self._ended(forked)
        if self.driver.s.fatal_code != 0:
            raise self._error(self.driver.s.fatal_code, 0, None, "", -1)
        if self.driver.s.txn_closed != 0:
            raise self._outside()
        return 0

    cdef Topic* find_topic(self, object name) except NULL:
        """Asks Python for one that is not known yet, which may take up to max.block.ms."""
        cdef Topic* t
        name = plain_name(name)
        t = self.driver.topic(name)
        if t == NULL or t.count == 0:
            self._load_topic(name, self.max_block_ns / 1e9)
            t = self.driver.topic(name)
        self.last_name = name
        self.last_topic = t
        return t

    @cython.binding(False)
    def send(
        self, topic: object, value: object = None, key: object = None, *,
        partition: object = None, headers: object = None, timestamp_ms: object = None,
        on_delivery: object = None,
    ) -> Delivery:
        """Takes a record; returns at once, unless memory or the topic's metadata have to be waited
        for, at most max.block.ms.

        headers: (name, bytes or None) pairs, or a dict. on_delivery(delivery) is called on the
        producer's control thread. Raises TypeError, ValueError for what cannot be sent, KafkaError
        for what the cluster says to the topic, BufferExhaustedError.
        """
        cdef int64_t wait_ns = self.max_block_ns
        if self.plain:
            return self.append(
                topic, value, key, partition, headers, timestamp_ms, on_delivery, wait_ns
            )
        self.check()
        topic, value, key, partition, headers, timestamp_ms, on_delivery = self._intercepted(
            topic, value, key, partition, headers, timestamp_ms, on_delivery
        )
        try:
            topic, value, key, partition, headers, timestamp_ms, on_delivery = self._prepare(
                topic, value, key, partition, headers, timestamp_ms, on_delivery
            )
            return self.append(
                topic, value, key, partition, headers, timestamp_ms, on_delivery, wait_ns
            )
        except Exception as error:
            self._not_taken(topic, partition, error)
            raise

    def _append(self, wait_ns: int, *prepared: object) -> Delivery | None:
        """send() of what is prepared; None where it may not wait for memory and would have to."""
        topic, value, key, partition, headers, timestamp_ms, on_delivery = prepared
        return self.append(
            topic, value, key, partition, headers, timestamp_ms, on_delivery, wait_ns
        )

    def _check(self) -> None:
        """Raises where no record is taken."""
        self.check()

    def _knows(self, topic: str) -> bool:
        """True where the topic's partitions are known, so that no send of it asks the cluster."""
        cdef Topic* t = self.driver.topic(topic)
        return t != NULL and t.count > 0

    cdef Delivery append(
        self, object topic, object value, object key, object partition, object headers,
        object timestamp_ms, object on_delivery, int64_t wait_ns
    ):
        cdef Rec rec
        cdef Topic* t
        cdef int32_t at
        cdef HeadersIn room
        if self.ended or self.generation != fork_generation() \
                or self.driver.s.fatal_code != 0 or self.driver.s.txn_closed != 0:
            self.check()
        if topic is self.last_name and topic is not None:
            t = self.last_topic
        else:
            t = self.find_topic(topic)
            topic = self.last_name
        if value is not None and type(value) is not bytes:
            value = bytes_of(value, "value")
        if key is not None and type(key) is not bytes:
            key = bytes_of(key, "key")
        rec.value = bytes_slice(value)
        rec.key = bytes_slice(key)
        if timestamp_ms is None:
            rec.timestamp = realtime_ms()
        else:
            rec.timestamp = checked_time(timestamp_ms)
        if partition is None:
            at = accumulator_partition(self.a, t, rec.key.p, rec.key.n)
        else:
            at = self._checked_partition(topic, partition)
        rec.headers = NULL
        rec.header_count = 0
        if on_delivery is not None and not callable(on_delivery):
            raise TypeError(f"on_delivery: {type(on_delivery).__name__} cannot be called")
        if headers is not None:
            room = HeadersIn(headers)
            rec.headers = room.headers
            rec.header_count = room.count
        return self.put(topic, t, at, &rec, on_delivery, wait_ns)

    cdef Delivery put(
        self, str name, Topic* t, int32_t partition, const Rec* rec, object on_delivery,
        int64_t wait_ns
    ):
        cdef ClientBatch* b
        cdef int32_t index
        cdef int64_t began_ns, deadline_ns
        cdef int code = accumulator_append(self.a, t, partition, rec, 0, &b, &index)
        cdef Delivery delivery
        if code != APPEND_OK:
            if code == MEMORY_TIMEOUT:
                accumulator_kick(self.a, True)
                if wait_ns <= 0:
                    return None
                began_ns = monotonic_ns()
                deadline_ns = began_ns + wait_ns
                while code == MEMORY_TIMEOUT and in_greenlet() and monotonic_ns() < deadline_ns:
                    rest(began_ns, deadline_ns)
                    code = accumulator_append(self.a, t, partition, rec, 0, &b, &index)
                if code == MEMORY_TIMEOUT:
                    with nogil:
                        code = accumulator_append(
                            self.a, t, partition, rec, deadline_ns, &b, &index
                        )
            if code == MEMORY_INTERRUPTED:
                raise_signal()
            if code != APPEND_OK:
                self.append_failed(code, name, rec.value.n)
        delivery = delivery_new()
        delivery.batch = b
        delivery.index = index
        delivery.topic = name
        delivery.time_ms = rec.timestamp
        delivery.key_bytes = rec.key.n
        delivery.value_bytes = rec.value.n
        if on_delivery is not None:
            delivery.add_callback(on_delivery)
        return delivery

    def append_failed(self, code: int, topic: str, value_bytes: int) -> None:
        """Raises what became of a record that was not taken."""
        if code in (APPEND_CLOSED, MEMORY_CLOSED):
            raise self._ended(False)
        if code == APPEND_TOO_LARGE:
            raise self._too_large(topic, value_bytes)
        raise self._exhausted(topic)

    def _checked_partition(self, topic: str, partition: object) -> int:
        """A partition that there is, after asking the cluster if need be."""
        cdef Topic* t = self.driver.topic(topic)
        if type(partition) is not int and PyIndex_Check(partition) and type(partition) is not bool:
            partition = PyNumber_Index(partition)       # one of numpy's
        if type(partition) is not int or partition < 0:
            raise ValueError(f"partition: {partition!r} is no partition")
        if partition >= t.count:
            self._load_partition(topic, partition, self.max_block_ns / 1e9)
        return partition

    def _partition_count(self, topic: str) -> int:
        """Asks the cluster where the topic is not known."""
        return self.find_topic(topic).count

    def _end(self) -> None:
        """Nothing more is taken; who waits for memory is told."""
        self.ended = True
        if self.a != NULL:
            accumulator_close(self.a)

    @property
    def closed(self) -> bool:
        """True once close() was called."""
        return bool(self.ended)
