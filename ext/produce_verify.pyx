"""Which partitions of a Produce open a transaction (see produce_verify.pxd)."""
from libc.stdlib cimport calloc
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i64
from kbroker.ext.batch cimport BASE_SEQUENCE_OFFSET, PRODUCER_EPOCH_OFFSET, PRODUCER_ID_OFFSET
from kbroker.ext.clock cimport realtime_ms
from kbroker.ext.connection cimport Verdict
from kbroker.ext.endian cimport load_i16, load_i32, load_i64
from kbroker.ext.error_codes cimport error_of_log
from kbroker.ext.log_producers cimport log_needs_no_verifying, log_verify
from kbroker.ext.log_state cimport LOG_OK, Log
from kbroker.ext.produce_wire cimport (
    ProduceHead,
    end_topic,
    read_head,
    read_partition,
    read_topic,
)
from kbroker.ext.registry cimport topic_log
from kbroker.ext.rights cimport (
    RIGHT_TRANSACTIONAL_ID_WRITE, rights_more, rights_put, rights_unref,
)
from kbroker.ext.stays cimport stay_enters, stay_leaves
from kbroker.ext.wire cimport Cursor, cursor_init

ctypedef struct Producing:              # who a transactional batch says that it is of
    int64_t id
    int16_t epoch
    int32_t sequence

# A walk over the partitions of a request.
ctypedef struct Walk:
    Cursor c
    ProduceHead head
    ProduceTopic topic
    Topic* found
    Slice records
    int32_t topics_left
    int32_t partitions_left
    int32_t partition
    int32_t number                      # of the partition in the request
    int16_t version
    const Rights* rights
    bint checks


cdef void walk_begin(Walk* w, const uint8_t* p, const uint8_t* end,
                     int16_t version) noexcept nogil:
    memset(w, 0, sizeof(Walk))
    cursor_init(&w.c, p, <size_t>(end - p))
    read_head(&w.c, version, &w.head)
    w.topics_left = w.head.topics_count
    w.version = version
    w.number = -1


cdef bint walk_on(Walk* w, Broker* broker) noexcept nogil:
    """To the next partition; False: there is none."""
    while w.partitions_left == 0:
        if w.number >= 0 and w.topic.partitions_count > 0:
            end_topic(&w.c, w.version)
        if w.topics_left == 0:
            return False
        w.topics_left -= 1
        read_topic(&w.c, w.version, &w.topic)
        w.partitions_left = w.topic.partitions_count
        w.found = find_topic(broker, &w.topic)
        if w.partitions_left == 0:
            end_topic(&w.c, w.version)
    w.partitions_left -= 1
    w.number += 1
    read_partition(&w.c, w.version, &w.partition, &w.records)
    return True


cdef bint read_producer(const Slice* records, Producing* out) noexcept nogil:
    """False: no batch of a transaction."""
    if not is_transactional(records):
        return False
    out.id = load_i64(records.p + PRODUCER_ID_OFFSET)
    out.epoch = load_i16(records.p + PRODUCER_EPOCH_OFFSET)
    out.sequence = load_i32(records.p + BASE_SEQUENCE_OFFSET)
    return out.id >= 0


cdef inline Log* log_of(Walk* w) noexcept nogil:
    if w.found == NULL or topic_ruling(w.rights, w.checks, &w.topic, w.found) != RULING_ALLOWED:
        return NULL
    return topic_log(w.found, w.partition)


cdef bint want(Rights* rights, const Rights* known, int right, const uint8_t* name,
               int32_t length) noexcept nogil:
    return rights_put(rights, right, name, length, rights_find(known, right, name, length))


cdef Rights* produce_rights(Broker* broker, const Request* request, const Rights* known,
                            int64_t version, bint transactional) noexcept nogil:
    cdef Rights* rights = rights_more(known, version)
    cdef Walk w
    cdef int32_t _i, _j
    cdef bint fits = rights != NULL
    walk_begin(&w, request.p, request.end, request.api_version)
    if fits and transactional and w.head.transactional_id.n >= 0:
        fits = want(rights, known, RIGHT_TRANSACTIONAL_ID_WRITE, w.head.transactional_id.p,
                    w.head.transactional_id.n)
    for _i in range(w.head.topics_count):
        read_topic(&w.c, w.version, &w.topic)
        w.found = find_topic(broker, &w.topic)
        if fits and w.topic.id == NULL:
            fits = want(rights, known, RIGHT_TOPIC_WRITE, w.topic.name.p, w.topic.name.n)
        elif fits and w.found != NULL:
            fits = want(rights, known, RIGHT_TOPIC_WRITE, w.found.name, w.found.name_length)
        for _j in range(w.topic.partitions_count):
            read_partition(&w.c, w.version, &w.partition, &w.records)
        end_topic(&w.c, w.version)
    if not fits:
        rights_unref(rights)
        return NULL
    return rights


cdef Openings produce_openings(Broker* broker, const Request* request, const Rights* rights,
                               bint checks) noexcept nogil:
    cdef Walk w
    cdef Producing first
    cdef Producing producer
    cdef Log* log
    cdef Openings openings = OPENS_NONE
    first.id = -1
    walk_begin(&w, request.p, request.end, request.api_version)
    w.rights = rights
    w.checks = checks
    while walk_on(&w, broker):
        log = log_of(&w)
        if log == NULL or not read_producer(&w.records, &producer):
            continue
        if first.id < 0:
            first = producer
        elif first.id != producer.id or first.epoch != producer.epoch:
            return OPENS_FOR_SEVERAL
        if openings == OPENS_NONE:
            stay_enters(request.stay, log.directory)
            if not log_needs_no_verifying(log, producer.id, producer.epoch):
                openings = OPENS_SOME
            stay_leaves(request.stay)
    return openings


# ---- the control thread's

cdef int32_t count_partitions(Broker* broker, Job* job) noexcept nogil:
    cdef Walk w
    walk_begin(&w, job.frame + job.body, job.frame + job.length, job.api_version)
    while walk_on(&w, broker):
        pass
    return w.number + 1


cdef tuple verification_begin(Broker* broker, Job* job, list places):
    cdef Walk w
    cdef Producing producer
    cdef Log* log
    cdef Verdict* verdict
    cdef bint adds = job.api_version >= FIRST_THAT_ADDS
    cdef int code
    cdef int64_t now_ms = realtime_ms()
    cdef list opened = []
    cdef int64_t producer_id = -1
    cdef int16_t epoch = -1
    job.verdicts = <Verdict*>calloc(max(count_partitions(broker, job), 1), sizeof(Verdict))
    if job.verdicts == NULL:
        raise MemoryError("no memory for the verdicts on a produce")
    walk_begin(&w, job.frame + job.body, job.frame + job.length, job.api_version)
    w.rights = <const Rights*>job.auth
    w.checks = atomic_load_i64(&broker.rights_version) != 0
    while walk_on(&w, broker):
        log = log_of(&w)
        if log == NULL or not read_producer(&w.records, &producer):
            continue
        producer_id, epoch = producer.id, producer.epoch
        verdict = &job.verdicts[w.number]
        code = log_verify(log, producer.id, producer.epoch, producer.sequence, adds, now_ms,
                          &verdict.guard)
        verdict.error = error_of_log(code)
        if code == LOG_OK and verdict.guard != 0:
            name = <bytes>w.found.name[:w.found.name_length]
            opened.append((name.decode(), w.partition))
            places.append(w.number)
    walk_begin(&w, job.frame + job.body, job.frame + job.length, job.api_version)
    transactional_id = <bytes>w.head.transactional_id.p[:w.head.transactional_id.n]
    return transactional_id.decode("utf-8", "replace"), producer_id, epoch, opened
