"""Deliveries (see client_delivery.pxd)."""
import logging
from collections import namedtuple

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.ref cimport Py_DECREF, Py_INCREF
from libc.stdlib cimport free, realloc

from kbroker.ext.atomics cimport atomic_load_i32
from kbroker.ext.client_batch cimport (
    ERROR_CLOSED, ERROR_COMPRESSION, ERROR_EXPIRED, ERROR_PURGED, OUTCOME_FAILED, OUTCOME_PENDING,
    batch_of_record, batch_ref, batch_unref, batch_wait, batch_watch, fork_generation,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.greenlets cimport in_greenlet, rest
from kbroker.ext.unmade cimport not_by_hand

cdef enum:
    SLICE_NS = 100000000            # a wait looks for Ctrl-C so often

PUBLIC = "kbroker.client.producer"  # which has these types for applications, and for pickle
log = logging.getLogger(PUBLIC)

RecordMetadata = namedtuple(
    "RecordMetadata",
    "topic partition offset timestamp serialized_key_size serialized_value_size",
    module=PUBLIC,
)
RecordMetadata.__doc__ = """Where a record lies. offset -1: the broker did not tell (acks=0, or a
duplicate that it has forgotten the place of). timestamp in ms: the record's own, or the broker's
where the topic has LogAppendTime. Sizes in bytes, -1 for null."""

OffsetRange = namedtuple("OffsetRange", "topic partition offset records", module=PUBLIC)
OffsetRange.__doc__ = """`records` records of a send_batch() at consecutive offsets of a partition,
the first at `offset` (-1: not told)."""


def default_error(code: int, local: int, message: str | None, topic: str, partition: int):
    """Until the client names its own exceptions."""
    return RuntimeError(f"{topic}-{partition}: error {code or local}: {message}")


error_factory = default_error


def set_error_factory(factory) -> None:
    """factory(code, local, message, topic, partition) -> the exception for a record that failed:
    Kafka's code, or what the producer did itself (EXPIRED, PURGED, CLOSED, COMPRESSION)."""
    global error_factory
    error_factory = factory


EXPIRED = ERROR_EXPIRED
PURGED = ERROR_PURGED
CLOSED = ERROR_CLOSED
COMPRESSION = ERROR_COMPRESSION


cdef object text_of(const char* text):
    return None if text == NULL else (<bytes> text).decode("utf-8", "replace")


cdef object error_of(ClientBatch* b, int32_t index, str topic):
    """The exception of a record; the one of its batch where index is -1. KIP-467: a bad record is
    named, the others of its batch went with it."""
    cdef str message = text_of(b.message)
    cdef int code = b.error_code
    cdef int32_t i
    if b.faults_count > 0 and index >= 0:
        for i in range(b.faults_count):
            if b.faults[i].index == index:
                message = text_of(b.faults[i].message) or message
                if b.faults_count > 1:
                    code = 87       # INVALID_RECORD: the code may be another record's
                return error_factory(code, b.local_error, message, topic, b.partition)
        return error_factory(
            87, 0, "it is sound, but another record of its batch is not", topic, b.partition
        )
    return error_factory(code, b.local_error, message, topic, b.partition)


cdef bint wait_for(ClientBatch* b, int64_t deadline_ns) except -1:
    cdef int64_t until
    cdef int64_t began_ns = 0
    if b.generation != fork_generation():
        raise RuntimeError("this delivery was made before fork(); its producer is not here")
    if atomic_load_i32(&b.state) == OUTCOME_PENDING and in_greenlet():
        began_ns = monotonic_ns()
        while atomic_load_i32(&b.state) == OUTCOME_PENDING:
            if monotonic_ns() >= deadline_ns:
                return False
            rest(began_ns, deadline_ns)
    while atomic_load_i32(&b.state) == OUTCOME_PENDING:
        until = min(deadline_ns, monotonic_ns() + SLICE_NS)
        with nogil:
            batch_wait(b, until)
        PyErr_CheckSignals()
        if until == deadline_ns:
            return atomic_load_i32(&b.state) != OUTCOME_PENDING
    return True


cdef int64_t deadline_of(object timeout) except? -1:
    """Monotonic; None: none."""
    if timeout is None:
        return 0x7FFFFFFFFFFFFFFF
    cdef double seconds = timeout
    if seconds > 1e9:
        return 0x7FFFFFFFFFFFFFFF
    return monotonic_ns() + <int64_t> (max(seconds, 0.0) * 1e9)


@cython.final
@cython.freelist(256)
cdef class Delivery:
    """The future of one record."""

    def __dealloc__(self) -> None:
        if self.batch != NULL:
            batch_unref(self.batch)

    cdef object outcome(self):
        """RecordMetadata or an exception; the outcome is there."""
        cdef int32_t index = self.index
        cdef ClientBatch* b = batch_of_record(self.batch, &index)
        if atomic_load_i32(&b.state) == OUTCOME_FAILED:
            self.batch.asked = True
            return error_of(b, index, self.topic)
        return RecordMetadata(
            self.topic, b.partition, b.base_offset + index if b.base_offset >= 0 else -1,
            self.time_ms if b.append_time < 0 else b.append_time,
            self.key_bytes, self.value_bytes,
        )

    def done(self) -> bool:
        """True once the record is delivered or has failed."""
        return atomic_load_i32(&self.batch.state) != OUTCOME_PENDING

    @property
    def partition(self) -> int:
        """The partition that the record goes to."""
        return self.batch.partition

    @property
    def timestamp_ms(self) -> int:
        """The record's own timestamp."""
        return self.time_ms

    @property
    def offset(self) -> int | None:
        """Where the record lies, -1 where the broker did not tell; None where it is not there."""
        found = self.outcome() if self.done() else None
        return found.offset if isinstance(found, RecordMetadata) else None

    @property
    def error(self):
        """The exception that result() would raise; None where there is none, or not yet."""
        found = self.outcome() if self.done() else None
        return found if isinstance(found, BaseException) else None

    @property
    def batch_id(self) -> int:
        """The same for records whose outcome comes at the same time."""
        return <size_t> self.batch

    def result(self, timeout: float | None = None):
        """Waits, then RecordMetadata, or raises what became of the record; TimeoutError where
        that is not known after `timeout` seconds. This argument and that of exception() are named
        as concurrent.futures.Future has them; all others of the client are `timeout_s`."""
        found = self.wait(timeout)
        if isinstance(found, BaseException):
            raise found
        return found

    def exception(self, timeout: float | None = None):
        """Waits, then None or the exception that result() would raise."""
        found = self.wait(timeout)
        return found if isinstance(found, BaseException) else None

    def wait(self, timeout_s: float | None = None):
        """Waits, then RecordMetadata or the exception."""
        if not wait_for(self.batch, deadline_of(timeout_s)):
            raise TimeoutError(f"the record for {self.topic} is not delivered after {timeout_s} s")
        return self.outcome()

    cdef int add_callback(self, object callback) except -1:
        cdef bint made = False
        cdef list callbacks
        if self.batch.callbacks == NULL:
            callbacks = []
            made = True
            Py_INCREF(callbacks)
            self.batch.callbacks = <void*> callbacks
        callbacks = <list> self.batch.callbacks
        callbacks.append((self, callback))
        if not batch_watch(self.batch) and made:
            # The outcome was there before: nobody else will run it.
            self.batch.callbacks = NULL
            Py_DECREF(callbacks)
            self.batch.asked = True
            call_back(self, callback)
        return 0

    def add_done_callback(self, callback) -> None:
        """callback(delivery) on the producer's control thread, or here where it is done."""
        self.add_callback(callback)

    def __repr__(self) -> str:
        if not self.done():
            return f"<Delivery to {self.topic}-{self.batch.partition}, pending>"
        return f"<Delivery {self.outcome()!r}>"


cdef int call_back(object delivery, object callback) except -1:
    # It does not end the thread that it happens to run on.
    try:
        callback(delivery)
    except (Exception, SystemExit):
        log.exception("the callback of %s raised", repr(delivery))
    return 0


cdef int run_callbacks(ClientBatch* b) except -1:
    cdef list callbacks
    if b.callbacks != NULL:
        callbacks = <list> b.callbacks
        b.callbacks = NULL
        Py_DECREF(callbacks)
        try:
            for delivery, callback in callbacks:
                call_back(delivery, callback)
        finally:
            batch_unref(b)
    else:
        batch_unref(b)
    return 0


@cython.final
cdef class BatchDelivery:
    """The future of what one send_batch() sent."""

    def __dealloc__(self) -> None:
        cdef int32_t i
        for i in range(self.count):
            batch_unref(self.ranges[i].batch)
        free(self.ranges)

    cdef int add(
        self, ClientBatch* b, int32_t index, int32_t count, int32_t* last
    ) except -1 nogil:
        """`count` records; the reference of the batch comes along. last[0]: the range that the
        partition got last, -1 for none."""
        cdef Range* grown
        cdef Range* before = &self.ranges[last[0]] if last[0] >= 0 else NULL
        self.records += count
        if before != NULL and before.batch == b and before.index + before.count == index:
            before.count += count
            batch_unref(b)
            return 0
        if self.count == self.room:
            grown = <Range*> realloc(self.ranges, sizeof(Range) * (2 * <size_t> self.room + 8))
            if grown == NULL:
                batch_unref(b)
                with gil:
                    raise MemoryError
            self.ranges = grown
            self.room = 2 * self.room + 8
        self.ranges[self.count].batch = b
        self.ranges[self.count].index = index
        self.ranges[self.count].count = count
        last[0] = self.count
        self.count += 1
        return 0

    def __len__(self) -> int:
        return self.records

    def done(self) -> bool:
        """True once every record is delivered or has failed."""
        cdef int32_t i
        for i in range(self.count):
            if atomic_load_i32(&self.ranges[i].batch.state) == OUTCOME_PENDING:
                return False
        return True

    cdef int ranges_of(self, Range* range_, list found, list errors) except -1:
        """Its places, through splits."""
        cdef int32_t index, left, count
        cdef int32_t at = range_.index
        cdef ClientBatch* b
        left = range_.count
        while left > 0:
            index = at
            b = batch_of_record(range_.batch, &index)
            count = min(left, b.builder.count - index)
            if atomic_load_i32(&b.state) == OUTCOME_FAILED:
                range_.batch.asked = True
                errors.append(error_of(b, -1, self.topic))
            else:
                offset = b.base_offset + index if b.base_offset >= 0 else -1
                found.append(OffsetRange(self.topic, b.partition, offset, count))
            at += count
            left -= count
        return 0

    def wait(self, timeout_s: float | None = None):
        """Waits, then (list of OffsetRange, list of exceptions)."""
        cdef int64_t deadline_ns = deadline_of(timeout_s)
        cdef list found = []
        cdef list errors = []
        cdef int32_t i
        for i in range(self.count):
            if not wait_for(self.ranges[i].batch, deadline_ns):
                raise TimeoutError(
                    f"not all of {self.records} records for {self.topic} are delivered"
                    f" after {timeout_s} s"
                )
        for i in range(self.count):
            self.ranges_of(&self.ranges[i], found, errors)
        return found, errors

    def result(self, timeout: float | None = None) -> list:
        """Waits, then the offset ranges in the order in which the partitions were filled; raises
        the first error where something failed (`wait` gives both)."""
        found, errors = self.wait(timeout)
        if errors:
            raise errors[0]
        return found

    def exception(self, timeout: float | None = None):
        """Waits, then None or the first error."""
        _, errors = self.wait(timeout)
        return errors[0] if errors else None

    def add_done_callback(self, callback) -> None:
        """callback(batch_delivery) once all is done, on the control thread, or here."""
        cdef Delivery each
        cdef list left = [self.count]
        cdef int32_t i

        def one_done(_: Delivery) -> None:
            left[0] -= 1
            if left[0] == 0:
                call_back(self, callback)

        if self.count == 0:
            call_back(self, callback)
        for i in range(self.count):
            each = Delivery.__new__(Delivery)
            batch_ref(self.ranges[i].batch)
            each.batch = self.ranges[i].batch
            each.topic = self.topic
            each.index = self.ranges[i].index
            each.add_callback(one_done)


cdef Delivery delivery_new():
    return Delivery.__new__(Delivery)


cdef BatchDelivery batch_delivery_new():
    return BatchDelivery.__new__(BatchDelivery)


not_by_hand(Delivery)
not_by_hand(BatchDelivery)
