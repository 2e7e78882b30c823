"""Faces of the walks over requests of the data plane for fuzzing: never shipped, compiled with
KBROKER_TEST=1. The loops are those of `survey` in ext/produce.pyx, ext/fetch_state.pyx and
ext/list_offsets.pyx."""
from libc.stdint cimport int16_t, int32_t, uint8_t

from kbroker.ext.borrowed cimport Borrowed
from kbroker.ext.fetch_wire cimport (
    FetchHead,
    fetch_end_struct,
    fetch_read_forgotten_count,
    fetch_read_forgotten_topic,
    fetch_read_head,
    fetch_read_partition,
    fetch_read_tail,
    fetch_read_topic,
)
from kbroker.ext.list_offsets_wire cimport (
    ListOffsetsHead,
    ListOffsetsTarget,
    ListOffsetsTopic,
    list_offsets_end_topic,
    list_offsets_read_head,
    list_offsets_read_partition,
    list_offsets_read_tail,
    list_offsets_read_topic,
)
from kbroker.ext.produce_wire cimport (
    ProduceHead, ProduceTopic, end_topic, read_head, read_partition, read_topic,
)
from kbroker.ext.sessions cimport FetchTarget
from kbroker.ext.wire cimport REQUEST_PARTITIONS_MAX, Cursor, Slice, cursor_init, get_i32, skip_tags


cdef bytes span(const uint8_t* p, int32_t n):
    return p[:n] if p != NULL and n > 0 else b""


def produce(data, version: int) -> list[tuple[bytes, int, bytes]] | None:
    """Topic (name or id), partition and records of each; None where the request is malformed."""
    cdef Borrowed borrowed = Borrowed(data)
    cdef int16_t v = version
    cdef Cursor c
    cdef ProduceHead head
    cdef ProduceTopic topic
    cdef Slice records
    cdef int32_t partition
    found = []
    cursor_init(&c, borrowed.p, borrowed.n)
    read_head(&c, v, &head)
    for _ in range(head.topics_count):
        read_topic(&c, v, &topic)
        name = span(topic.id, 16) if topic.id != NULL else span(topic.name.p, topic.name.n)
        for _ in range(topic.partitions_count):
            read_partition(&c, v, &partition, &records)
            if c.bad or len(found) == REQUEST_PARTITIONS_MAX:
                return None
            found.append((name, partition, span(records.p, records.n)))
        end_topic(&c, v)
    if v >= 9:
        skip_tags(&c)
    return None if c.bad else found


cdef bytes target_name(const FetchTarget* target):
    return span(target.name, target.name_length) if target.name != NULL else target.id[:16]


def fetch(data, version: int) -> list[tuple[bytes, int, int]] | None:
    """Topic (name or id), partition and offset of each, then those that a session forgets with
    offset -1; None where the request is malformed."""
    cdef Borrowed borrowed = Borrowed(data)
    cdef int16_t v = version
    cdef Cursor c
    cdef FetchHead head
    cdef FetchTarget target
    cdef int32_t count
    found = []
    cursor_init(&c, borrowed.p, borrowed.n)
    fetch_read_head(&c, v, &head)
    for _ in range(head.topics_count):
        count = fetch_read_topic(&c, v, &target)
        if c.bad or len(found) + count > REQUEST_PARTITIONS_MAX:
            return None
        for _ in range(count):
            fetch_read_partition(&c, v, &target)
            found.append((target_name(&target), target.partition, target.offset))
        fetch_end_struct(&c, v)
    for _ in range(fetch_read_forgotten_count(&c, v)):
        for _ in range(fetch_read_forgotten_topic(&c, v, &target)):
            found.append((target_name(&target), get_i32(&c), -1))
        fetch_end_struct(&c, v)
        if c.bad:
            return None
    fetch_read_tail(&c, v, &head)
    return None if c.bad else found


def list_offsets(data, version: int) -> list[tuple[bytes, int, int]] | None:
    """Topic, partition and timestamp of each; None where the request is malformed."""
    cdef Borrowed borrowed = Borrowed(data)
    cdef int16_t v = version
    cdef Cursor c
    cdef ListOffsetsHead head
    cdef ListOffsetsTopic topic
    cdef ListOffsetsTarget target
    found = []
    cursor_init(&c, borrowed.p, borrowed.n)
    list_offsets_read_head(&c, v, &head)
    for _ in range(head.topics_count):
        list_offsets_read_topic(&c, v, &topic)
        if c.bad or len(found) + topic.partitions_count > REQUEST_PARTITIONS_MAX:
            return None
        name = span(topic.name.p, topic.name.n)
        for _ in range(topic.partitions_count):
            list_offsets_read_partition(&c, v, &target)
            found.append((name, target.partition, target.timestamp))
        list_offsets_end_topic(&c, v)
    list_offsets_read_tail(&c, v)
    return None if c.bad else found
