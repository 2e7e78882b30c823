"""Produce (key 0), versions 3 to 13: from the frame in the receive buffer to the log and back.

Behavior: the whole request is read before anything is done, so a malformed one has no effect.
Each partition is then checked and appended on its own; one may fail while others succeed. acks=0
gets no answer, but a failure closes the connection, which is how such a producer learns of it.
acks=1 is answered after the append. acks=all is answered when the high watermark has passed the
batch: at once with durability=page-cache, else when the journal's group is on disk; the request
waits in purgatory for that, at most its timeout, and the answer is written ahead but for the
error codes that the wait may still set.

No room within the disk's limits (kbroker.disk.*): KAFKA_STORAGE_ERROR, as for a disk that is full.
Clients hold on to the records and try again until their delivery timeout; a code that they do not
retry, such as POLICY_VIOLATION, would lose the records and break the sequence of an idempotent
producer over a shortage that may pass in a second.

What must decompress or recompress goes to the I/O pool, where the same code runs.

Transactions: a request with a batch that opens one in its log goes to the control thread first, and
comes back with verdicts (produce_verify.pxd). All others pass with one look at the log's producers.

Quotas: what came counts when it has been appended; the answer, written ahead or not, tells how long
the connection is not read from then on. With acks=0 the bytes count and the time does not.

Rights: a request that wants one that is not known goes to the control thread first (rights.pxd).
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from kbroker.ext.atomics cimport atomic_add_relaxed_i64, atomic_load_i32, atomic_load_i64
from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_BAD_TIMESTAMP,
    BATCH_EMPTY, BATCH_NO_CODEC, BATCH_NO_KEY, BATCH_OK, BATCH_OLD_MAGIC, BATCH_TOO_LARGE,
    BATCH_TRAILING, BATCH_ZSTD_TOO_EARLY, CODEC_MASK, LENGTH_OFFSET, RECORDS_OFFSET, BatchInfo,
    BatchRules, batch_error_code, batch_error_message, batch_parse, batch_validate,
)
from kbroker.ext.broker cimport (
    COUNTED_PRODUCE, Broker, broker_of, count_error, count_refused,
)
from kbroker.ext.compression cimport codec_available
from kbroker.ext.connection cimport (
    H_CLOSE, H_CONTROL, H_DONE, H_IO, H_NONE, H_PENDING, H_STALL, Op, Reply, Request, Verdict,
)
from kbroker.ext.endian cimport load_i32
from kbroker.ext.error_codes cimport (
    INVALID_RECORD, INVALID_REQUIRED_ACKS, INVALID_PRODUCER_ID_MAPPING, INVALID_TOPIC_EXCEPTION,
    INVALID_TXN_STATE, KAFKA_STORAGE_ERROR, NONE, REQUEST_TIMED_OUT, TOPIC_AUTHORIZATION_FAILED,
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
    error_of_log,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.journal cimport JOURNAL_FAILED, JOURNAL_OK
from kbroker.ext.journal_room cimport journal_wait_room_until
from kbroker.ext.log_append cimport AppendResult, log_append_on
from kbroker.ext.log_state cimport LOG_DUPLICATE, LOG_OK, LOG_STALL, LOG_STORAGE_ERROR, Log
from kbroker.ext.produce_codec cimport (
    Rewritten, must_decompress, rewrite_batch, rewritten_free, tell_missing_codec,
)
from kbroker.ext.produce_room cimport is_full, produce_demand, produce_has_room
from kbroker.ext.produce_verify cimport (
    FIRST_THAT_ADDS, OPENS_FOR_SEVERAL, OPENS_NONE, OPENS_SOME, Openings, find_topic,
    is_transactional, produce_openings, produce_rights, topic_ruling,
)
from kbroker.ext.produce_wait cimport durable_park, durable_release, durable_watch
from kbroker.ext.produce_wire cimport (
    BAD_RECORDS_LISTED_MAX, PartitionResult, ProduceHead, ProduceTopic, bad_records_find, end_topic,
    read_head, read_partition, read_topic, response_bytes_max, write_response,
)
from kbroker.ext.producers cimport NOT_GUARDED, ORIGIN_CLIENT, Terms
from kbroker.ext.purgatory cimport log_has_readers, log_wake
from kbroker.ext.quotas cimport quota_produce
from kbroker.ext.registry cimport Topic, topic_log
from kbroker.ext.response cimport op_deadline, reply_begin, reply_end
from kbroker.ext.rights cimport (
    RIGHT_TRANSACTIONAL_ID_WRITE, RULING_ALLOWED, RULING_UNKNOWN, Rights, rights_find, rights_of,
)
from kbroker.ext.wire cimport (
    REQUEST_PARTITIONS_MAX, Cursor, Slice, Writer, cursor_init, skip_tags, writer_init,
)

cdef enum:
    RESULTS_ON_STACK = 16
    DURABLE_WAIT_MS_MIN = 1000      # with a timeout of 0 Kafka, who waits for no disk, answers well
    RECORD_OVERHEAD_OF_OLD = 14     # the least length of a message of magic 0

cdef const char* ADMIN_CLIENT_ID = b"__admin_client"
cdef const char* NO_ROOM = b"The broker's disk has reached the limit that is set for it"
cdef const char* REJECTED = b"One or more records have been rejected"
cdef const char* NOT_IN_TXN = b"The partition is not part of the producer's transaction"
cdef const char* SEVERAL_PRODUCERS = b"Transactional batches of one request are of one producer"


# One request while it is handled; on the stack of handle_produce.
ctypedef struct Produce:
    Request* request
    Broker* broker
    ProduceHead head
    BatchRules rules                # of the partition at hand
    uint32_t count                  # partitions
    uint32_t records_bytes
    bint heavy                      # something must be decompressed
    uint64_t full                   # directories whose limits leave no room for clients
    int64_t stalled_until_ns        # monotonic; 0: no journal has been waited for
    bint demand                     # somebody waits for the journal
    bint failed                     # a partition has an error
    int32_t waiting                 # partitions whose batch must become durable
    int32_t bad_left                # bad records that may still be listed
    bint transactional
    bint verifies                   # batches that open a transaction want a verdict
    bint checks                     # there is an authorizer
    bint unsettled                  # a right is not known
    bint denied                     # the transactional id may not be used
    const Rights* rights
    Openings openings
    Terms terms                     # of the batch at hand
    PartitionResult* results


# -- reading --------------------------------------------------------------------------------

cdef bint survey(Produce* produce) noexcept nogil:
    """Walk the whole request once. False: it is malformed."""
    cdef Request* request = produce.request
    cdef Cursor c
    cdef ProduceTopic topic
    cdef Topic* found
    cdef Slice records
    cdef int32_t partition
    cdef int32_t _i, _j
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    read_head(&c, request.api_version, &produce.head)
    for _i in range(produce.head.topics_count):
        read_topic(&c, request.api_version, &topic)
        found = find_topic(produce.broker, &topic) if not c.bad else NULL
        if produce.checks and not c.bad and topic_ruling(
                produce.rights, True, &topic, found) == RULING_UNKNOWN:
            produce.unsettled = True
        for _j in range(topic.partitions_count):
            read_partition(&c, request.api_version, &partition, &records)
            produce.count += 1
            if c.bad or produce.count > REQUEST_PARTITIONS_MAX:
                return False
            if records.n > RECORDS_OFFSET:
                produce.records_bytes += <uint32_t>records.n
                produce.transactional |= is_transactional(&records)
                if found != NULL and must_decompress(topic_log(found, partition), &records):
                    produce.heavy = True
        end_topic(&c, request.api_version)
    if request.api_version >= 9:
        skip_tags(&c)
    return not c.bad              # bytes behind the end are passed over, as Kafka does


# -- one partition --------------------------------------------------------------------------

cdef void set_rules(Produce* produce, Log* log) noexcept nogil:
    cdef BatchRules* rules = &produce.rules
    rules.now_ms = produce.request.wall_ms
    rules.timestamp_before_max_ms = log.cfg.timestamp_before_max_ms
    rules.timestamp_after_max_ms = log.cfg.timestamp_after_max_ms
    rules.max_message_bytes = <int32_t>log.cfg.max_message_bytes
    rules.log_append_time = log.cfg.timestamp_type == 1
    rules.compacted = log.cfg.cleanup_compact != 0
    rules.from_client = True
    rules.zstd_allowed = produce.request.api_version >= 7


cdef inline bint came_to_the_log(int code) noexcept nogil:
    """Was it a check that Kafka makes at the log, whose answers tell where the log starts?"""
    return not (code == BATCH_EMPTY or code == BATCH_OLD_MAGIC or code == BATCH_TRAILING
                or code == BATCH_ZSTD_TOO_EARLY or code == BATCH_BAD_MAGIC
                or code == BATCH_BAD_LENGTH or code == BATCH_BAD_CRC
                or code == BATCH_TOO_LARGE)


cdef void list_bad_records(Produce* produce, PartitionResult* result) noexcept nogil:
    """Those of a batch that is not compressed; else they were found when it was decompressed."""
    cdef const uint8_t* batch = result.records.p
    cdef BatchInfo info
    if batch_parse(batch, batch + result.records.n, &info) == BATCH_OK and info.compression == 0:
        bad_records_find(batch + RECORDS_OFFSET, batch + info.length, &produce.rules, &info,
                         &produce.bad_left, &result.bad)


cdef inline bint is_shorter_than_any(const Slice* records) noexcept nogil:
    """A length that no format has ever had: Kafka says so in words."""
    return load_i32(records.p + LENGTH_OFFSET) < RECORD_OVERHEAD_OF_OLD


cdef void refuse_codec(Produce* produce, PartitionResult* result) noexcept nogil:
    """The library that one of the two codecs needs, the batch's or the topic's, is missing."""
    cdef int32_t codec = result.records.p[ATTRIBUTES_OFFSET + 1] & CODEC_MASK
    if codec_available(codec):
        codec = result.log.cfg.compression_type
    result.message = batch_error_message(BATCH_NO_CODEC)
    tell_missing_codec(produce.request.net, codec)


cdef void refuse_batch(Produce* produce, PartitionResult* result, int code) noexcept nogil:
    """The batch was refused by its content. Records of the wrong kind are listed each."""
    result.error = batch_error_code(code)
    count_refused(produce.broker, code, result.records.n)
    if came_to_the_log(code):
        result.log_start = atomic_load_i64(&result.log.log_start)
    elif code == BATCH_BAD_MAGIC or (code == BATCH_BAD_LENGTH
                                     and is_shorter_than_any(&result.records)):
        result.message = batch_error_message(code)
    if code == BATCH_NO_KEY or code == BATCH_BAD_TIMESTAMP:
        result.message = REJECTED
        list_bad_records(produce, result)
    if code == BATCH_NO_CODEC:
        refuse_codec(produce, result)


cdef int append_or_wait(Produce* produce, Log* log, uint8_t* batch, const BatchInfo* info,
                        AppendResult* out) noexcept nogil:
    """log_append; room was seen for the whole request, so a stall here is rare and short. Of
    several disks one that hangs does not hold up the thread for others, or for each partition."""
    cdef int waited
    cdef int code = log_append_on(log, &produce.terms, batch, info, produce.request.wall_ms, out)
    if code == LOG_STALL and produce.broker.directories_count > 1:
        if produce.stalled_until_ns == 0:
            produce.stalled_until_ns = monotonic_ns() + DURABLE_WAIT_MS_MIN * <int64_t>1000000
    while code == LOG_STALL:
        waited = journal_wait_room_until(log.journal, produce.stalled_until_ns)
        if waited != JOURNAL_OK:
            return LOG_STORAGE_ERROR if waited == JOURNAL_FAILED else LOG_STALL
        code = log_append_on(log, &produce.terms, batch, info, produce.request.wall_ms, out)
    return code


cdef void append_batch(Produce* produce, PartitionResult* result, uint8_t* batch,
                       const BatchInfo* info) noexcept nogil:
    cdef AppendResult appended
    cdef int code
    memset(&appended, 0, sizeof(appended))
    code = append_or_wait(produce, result.log, batch, info, &appended)
    result.error = REQUEST_TIMED_OUT if code == LOG_STALL else error_of_log(code)
    result.log_start = appended.log_start
    if code != LOG_OK and code != LOG_DUPLICATE:
        return
    result.base_offset = appended.base_offset
    result.log_append_time = appended.log_append_time
    if appended.hw_advanced:
        log_wake(result.log)
    elif result.log.journal != NULL:
        if produce.head.acks == -1:
            result.end_offset = appended.end_offset
            produce.waiting += 1
        elif log_has_readers(result.log):
            produce.demand = True


cdef void produce_partition(Produce* produce, PartitionResult* result) noexcept nogil:
    """Check and append what came for one partition; result.log is there."""
    cdef BatchInfo info
    cdef Rewritten rewritten
    cdef int32_t bad_record = -1
    cdef const Slice* records = &result.records
    cdef int code
    set_rules(produce, result.log)
    code = batch_validate(records.p, records.p + max(records.n, 0), &produce.rules, &info,
                          &bad_record)
    if code != BATCH_OK:
        refuse_batch(produce, result, code)
        return
    if not must_decompress(result.log, records):
        append_batch(produce, result, <uint8_t*>records.p, &info)
        return
    code = rewrite_batch(result.log, records.p, &produce.rules, &info, &rewritten,
                         &produce.bad_left, &result.bad)
    if code != BATCH_OK:
        refuse_batch(produce, result, code)
    elif rewritten.batch == NULL:
        append_batch(produce, result, <uint8_t*>records.p, &info)
    else:
        append_batch(produce, result, rewritten.batch, &rewritten.info)
    rewritten_free(&rewritten)


cdef inline bint from_admin_client(Request* request) noexcept nogil:
    return request.client_id_length == 14 and memcmp(request.client_id, ADMIN_CLIENT_ID, 14) == 0


cdef void find_log(Produce* produce, Topic* topic, bint by_id, bint denied,
                   PartitionResult* result) noexcept nogil:
    """Sets result.log, or result.error when the partition takes no records."""
    if produce.denied or (produce.transactional and produce.head.transactional_id.n < 0):
        result.error = TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif denied:
        result.error = TOPIC_AUTHORIZATION_FAILED
    elif produce.openings == OPENS_FOR_SEVERAL:
        result.error = INVALID_PRODUCER_ID_MAPPING
        result.message = SEVERAL_PRODUCERS
    elif topic == NULL:
        result.error = UNKNOWN_TOPIC_ID if by_id else UNKNOWN_TOPIC_OR_PARTITION
    elif result.partition < 0 or result.partition >= topic.partitions_count:
        result.error = UNKNOWN_TOPIC_OR_PARTITION
    elif result.records.n <= 0:
        result.error = INVALID_RECORD
    elif produce.head.acks < -1 or produce.head.acks > 1:
        result.error = INVALID_REQUIRED_ACKS
    elif topic.internal and not from_admin_client(produce.request):
        result.error = INVALID_TOPIC_EXCEPTION
    elif produce.full and not topic.internal \
            and is_full(produce.full, topic_log(topic, result.partition)):
        result.error = KAFKA_STORAGE_ERROR
        result.message = NO_ROOM
    else:
        result.log = topic_log(topic, result.partition)
        if result.log == NULL:
            result.error = KAFKA_STORAGE_ERROR


cdef bint may_append(Produce* produce, PartitionResult* result,
                     uint32_t number) noexcept nogil:
    """Sets the terms of the append; False: the coordinator refused, or it may not be asked."""
    cdef const Verdict* verdict = NULL
    produce.terms.guard = 0 if produce.verifies else NOT_GUARDED
    if produce.request.verdicts != NULL:
        verdict = &produce.request.verdicts[number]
        produce.terms.guard = verdict.guard
        result.error = verdict.error
    if result.error == INVALID_TXN_STATE:
        result.message = NOT_IN_TXN
    return result.error == NONE


cdef void execute(Produce* produce) noexcept nogil:
    """Append all partitions, in their order."""
    cdef Request* request = produce.request
    cdef PartitionResult* result = produce.results
    cdef Cursor c
    cdef ProduceHead head
    cdef ProduceTopic topic
    cdef Topic* found
    cdef bint denied
    cdef int32_t _i, _j
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    read_head(&c, request.api_version, &head)
    for _i in range(head.topics_count):
        read_topic(&c, request.api_version, &topic)
        found = find_topic(produce.broker, &topic)
        denied = topic_ruling(produce.rights, produce.checks, &topic, found) != RULING_ALLOWED
        for _j in range(topic.partitions_count):
            memset(result, 0, sizeof(PartitionResult))
            result.base_offset = result.log_append_time = -1
            result.log_start = result.end_offset = -1
            read_partition(&c, request.api_version, &result.partition, &result.records)
            find_log(produce, found, topic.id != NULL, denied, result)
            if result.log != NULL and may_append(
                    produce, result, <uint32_t>(result - produce.results)):
                produce_partition(produce, result)
                atomic_add_relaxed_i64(&result.log.counts.produces, 1)
                if result.error != NONE:
                    atomic_add_relaxed_i64(&result.log.counts.produces_failed, 1)
            produce.failed |= result.error != NONE
            count_error(produce.broker, COUNTED_PRODUCE, result.error)
            result += 1
        end_topic(&c, request.api_version)


# -- the handler ----------------------------------------------------------------------------

cdef uint32_t write_reply(Produce* produce, Reply* reply) noexcept nogil:
    """The body of the response, its beginning made; returns its length. 0: no memory."""
    cdef Request* request = produce.request
    cdef uint32_t room = response_bytes_max(<uint32_t>(request.end - request.p)
                                            - produce.records_bytes,
                                            produce.results, produce.count)
    cdef uint8_t* body = reply_begin(reply, room)
    cdef Writer w
    if body == NULL:
        return 0
    writer_init(&w, body, room)
    write_response(&w, request.api_version, request.p, request.end, produce.results,
                   <int32_t>request.throttle_ms)
    return <uint32_t>(w.p - body)


cdef int reply_when_durable(Produce* produce) noexcept nogil:
    """Write the answer ahead; it leaves when all that was appended is on disk."""
    cdef Op* op = durable_park(produce.request, produce.waiting)
    cdef uint32_t written
    if op == NULL:
        produce.request.reason = b"out of memory"
        return H_CLOSE
    written = write_reply(produce, &op.reply)
    if written == 0:
        produce.request.reason = b"out of memory"
        return H_CLOSE
    durable_watch(op, produce.results, produce.count, written)
    produce_demand(produce.broker, produce.results, produce.count)
    op_deadline(op, max(produce.head.timeout_ms, <int32_t>DURABLE_WAIT_MS_MIN))
    durable_release(op)
    return H_PENDING


cdef int answer(Produce* produce) noexcept nogil:
    cdef uint32_t written
    quota_produce(produce.request, produce.head.acks != 0)
    if produce.head.acks == 0:
        if produce.demand:
            produce_demand(produce.broker, produce.results, produce.count)
        if produce.failed:
            produce.request.reason = b"a produce with acks=0 failed"
            return H_CLOSE
        return H_NONE
    if produce.waiting:
        return reply_when_durable(produce)
    if produce.demand:
        produce_demand(produce.broker, produce.results, produce.count)
    written = write_reply(produce, &produce.request.reply)
    if written == 0:
        produce.request.reason = b"out of memory"
        return H_CLOSE
    reply_end(&produce.request.reply, written)
    return H_DONE


cdef int run(Produce* produce) noexcept nogil:
    """Append and answer, with memory for the results."""
    cdef PartitionResult on_stack[RESULTS_ON_STACK]
    cdef uint32_t i
    cdef int outcome
    produce.results = on_stack
    if produce.count > RESULTS_ON_STACK:
        produce.results = <PartitionResult*>malloc(produce.count * sizeof(PartitionResult))
        if produce.results == NULL:
            produce.request.reason = b"out of memory"
            return H_CLOSE
    execute(produce)
    outcome = answer(produce)
    if produce.failed:
        for i in range(produce.count):
            free(produce.results[i].bad.list)
    if produce.results != on_stack:
        free(produce.results)
    return outcome


cdef bint must_verify(Produce* produce) noexcept nogil:
    """Does a batch open a transaction that the coordinator has not been asked about?"""
    cdef Request* request = produce.request
    produce.terms.origin = ORIGIN_CLIENT
    produce.openings = OPENS_NONE
    produce.verifies = request.api_version >= FIRST_THAT_ADDS \
        or atomic_load_i32(&produce.broker.verify_transactions) != 0
    if not produce.transactional or produce.head.transactional_id.n < 0 or produce.denied:
        return False
    produce.openings = produce_openings(produce.broker, request, produce.rights, produce.checks)
    return produce.openings == OPENS_SOME and produce.verifies and request.verdicts == NULL


cdef bint must_ask(Produce* produce) noexcept nogil:
    """Is a right not known? In the pool all are that came with the job."""
    cdef const Slice* name = &produce.head.transactional_id
    cdef int ruling = RULING_ALLOWED
    if not produce.checks:
        return False
    if produce.transactional and name.n >= 0:
        ruling = rights_find(produce.rights, RIGHT_TRANSACTIONAL_ID_WRITE, name.p, name.n)
    produce.denied = ruling != RULING_ALLOWED
    return (produce.unsettled or ruling == RULING_UNKNOWN) and not produce.request.on_io


cdef int ask(Produce* produce, int64_t version) noexcept nogil:
    cdef Request* request = produce.request
    request.asked = produce_rights(produce.broker, request, produce.rights, version,
                                   produce.transactional)
    if request.asked == NULL:
        request.reason = b"out of memory"
        return H_CLOSE
    return H_CONTROL


cdef int handle_produce(Request* request) noexcept nogil:
    cdef Produce produce
    cdef int64_t version
    memset(&produce, 0, sizeof(Produce))
    produce.request = request
    produce.broker = broker_of(request.net)
    produce.bad_left = BAD_RECORDS_LISTED_MAX
    version = atomic_load_i64(&produce.broker.rights_version)
    if version != 0:
        produce.checks = True
        produce.rights = rights_of(request, version)
    if not survey(&produce):
        request.reason = b"malformed Produce request"
        return H_CLOSE
    if must_ask(&produce):
        return ask(&produce, version)
    if must_verify(&produce):
        return H_CONTROL
    if produce.heavy and not request.on_io:
        return H_IO
    if not produce_has_room(produce.broker, request, produce.records_bytes, produce.count,
                            &produce.full):
        return H_STALL
    return run(&produce)
