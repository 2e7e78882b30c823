"""See produce_room.pxd."""
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_relaxed_u64
from kbroker.ext.broker cimport (
    DISK_FULL,
    DISK_LATER,
    Directory,
    disk_give_back,
    disk_take,
)
from kbroker.ext.journal cimport JOURNAL_ENTRY_HEADER_BYTES, journal_demand
from kbroker.ext.journal_room cimport journal_has_room
from kbroker.ext.log_state cimport DIRECTORIES_MAX
from kbroker.ext.produce_verify cimport find_topic
from kbroker.ext.produce_wire cimport (
    ProduceHead,
    ProduceTopic,
    end_topic,
    read_head,
    read_partition,
    read_topic,
)
from kbroker.ext.registry cimport Topic, topic_log
from kbroker.ext.wire cimport Cursor, Slice, cursor_init

cdef enum:
    ENTRY_OVERHEAD_BYTES = JOURNAL_ENTRY_HEADER_BYTES + 8

ctypedef struct Wanted:             # by directory
    int64_t bytes[DIRECTORIES_MAX]  # of records
    uint32_t count[DIRECTORIES_MAX]


cdef bint fits(const Directory* disk, int64_t bytes, uint32_t count) noexcept nogil:
    return disk.journal == NULL or count == 0 or journal_has_room(
        disk.journal, <uint32_t>bytes + count * ENTRY_OVERHEAD_BYTES)


cdef void survey(Broker* broker, const Request* request, Wanted* wanted) noexcept nogil:
    cdef Cursor c
    cdef ProduceHead head
    cdef ProduceTopic topic
    cdef Topic* found
    cdef Log* log
    cdef Slice records
    cdef int32_t partition
    cdef int32_t _i, _j
    memset(wanted, 0, sizeof(Wanted))
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    read_head(&c, request.api_version, &head)
    for _i in range(head.topics_count):
        read_topic(&c, request.api_version, &topic)
        found = find_topic(broker, &topic)
        for _j in range(topic.partitions_count):
            read_partition(&c, request.api_version, &partition, &records)
            log = topic_log(found, partition) if found != NULL else NULL
            if log != NULL and records.n > 0:
                wanted.bytes[log.directory] += records.n
                wanted.count[log.directory] += 1
        end_topic(&c, request.api_version)


cdef bint produce_hangs(Broker* broker, const Request* request) noexcept nogil:
    cdef uint64_t hanging = atomic_load_relaxed_u64(&request.net.hanging)
    cdef Wanted wanted
    cdef int32_t i
    if hanging == 0:
        return False
    survey(broker, request, &wanted)
    for i in range(broker.directories_count):
        if hanging >> i & 1 and wanted.count[i] != 0:
            return True
    return False


cdef bint several_have_room(Broker* broker, const Request* request, uint64_t* full) noexcept nogil:
    """In all that it wants something of, or else nothing is taken."""
    cdef Wanted wanted
    cdef uint64_t taken = 0
    cdef int32_t i, k
    cdef int room
    survey(broker, request, &wanted)
    for i in range(broker.directories_count):
        if not fits(&broker.directories[i], wanted.bytes[i], wanted.count[i]):
            return False
    for i in range(broker.directories_count):
        if wanted.count[i] == 0:
            continue
        room = disk_take(&broker.directories[i], wanted.bytes[i])
        if room == DISK_FULL:
            full[0] |= <uint64_t>1 << i
        elif room == DISK_LATER:
            for k in range(i):
                if taken >> k & 1:
                    disk_give_back(&broker.directories[k], wanted.bytes[k])
            return False
        else:
            taken |= <uint64_t>1 << i
    return True


cdef bint produce_has_room(Broker* broker, const Request* request, uint32_t records_bytes,
                           uint32_t count, uint64_t* full) noexcept nogil:
    cdef Directory* disk = &broker.directories[0]
    cdef int room
    full[0] = 0
    if broker.directories_count > 1:
        return several_have_room(broker, request, full)
    if not fits(disk, records_bytes, count):
        return False
    room = disk_take(disk, records_bytes)
    full[0] = room == DISK_FULL
    return room != DISK_LATER


cdef void produce_demand(Broker* broker, const PartitionResult* results,
                         uint32_t count) noexcept nogil:
    cdef uint32_t i
    if broker.directories_count == 1:
        journal_demand(broker.directories[0].journal)
        return
    for i in range(count):
        if results[i].log != NULL and results[i].log.journal != NULL:
            journal_demand(results[i].log.journal)
