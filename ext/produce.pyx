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
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcmp, memset

from kbroker.ext.atomics cimport atomic_add_relaxed_i64, atomic_load_i32, atomic_load_i64
from kbroker.ext.batch cimport BATCH_OK, RECORDS_OFFSET, BatchInfo, BatchRules, batch_validate
from kbroker.ext.broker cimport COUNTED_PRODUCE, broker_of, count_error
from kbroker.ext.connection cimport (
    H_CLOSE, H_CONTROL, H_DONE, H_IO, H_NONE, H_PENDING, H_STALL, Op, Reply, Request, Verdict,
)
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
from kbroker.ext.log_state cimport (
    LOG_DUPLICATE, LOG_OK, LOG_STALL, LOG_STORAGE_ERROR, Log, log_acknowledge,
)
from kbroker.ext.produce_codec cimport Rewritten, must_decompress, rewrite_batch, rewritten_free
from kbroker.ext.produce_refuse cimport Produce, produce_refuse
from kbroker.ext.produce_room cimport (
    is_full, produce_demand, produce_hangs, produce_has_room,
)
from kbroker.ext.produce_verify cimport (
    FIRST_THAT_ADDS, OPENS_FOR_SEVERAL, OPENS_NONE, OPENS_SOME, find_topic, is_transactional,
    produce_openings, produce_rights, topic_ruling,
)
from kbroker.ext.produce_wait cimport durable_park, durable_release, durable_watch
from kbroker.ext.produce_wire cimport (
    BAD_RECORDS_LISTED_MAX, PartitionResult, ProduceHead, ProduceTopic, end_topic, read_head,
    read_partition, read_topic, response_bytes_max, write_response,
)
from kbroker.ext.producers cimport NOT_GUARDED, ORIGIN_CLIENT
from kbroker.ext.purgatory cimport log_has_readers, log_wake
from kbroker.ext.quotas cimport quota_produce
from kbroker.ext.registry cimport Topic, topic_log
from kbroker.ext.response cimport op_deadline, reply_begin, reply_end
from kbroker.ext.rights cimport (
    RIGHT_TRANSACTIONAL_ID_WRITE, RULING_ALLOWED, RULING_UNKNOWN, rights_find, rights_of,
)
from kbroker.ext.runners cimport stay_begins, stay_ends
from kbroker.ext.stays cimport stay_enters, stay_hangs, stay_leaves
from kbroker.ext.wire cimport (
    REQUEST_PARTITIONS_MAX, Cursor, Slice, Writer, cursor_init, skip_tags, writer_init,
)

cdef enum:
    RESULTS_ON_STACK = 16
    DURABLE_WAIT_MS_MIN = 1000      # with a timeout of 0 Kafka, who waits for no disk, answers well

cdef const char* ADMIN_CLIENT_ID = b"__admin_client"
cdef const char* NO_ROOM = b"The broker's disk has reached the limit that is set for it"
cdef const char* NOT_IN_TXN = b"Partition was not added to the transaction"
cdef const char* SEVERAL_PRODUCERS = b"Transactional records contained more than one producer ID"


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
    stay_enters(produce.request.stay, result.log.directory)
    code = append_or_wait(produce, result.log, batch, info, &appended)
    stay_leaves(produce.request.stay)
    if stay_hangs(produce.request.stay):
        produce.overdue = True          # out of there at once: other batches may be for other disks
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
        else:
            log_acknowledge(result.log, appended.end_offset)
            produce.demand |= log_has_readers(result.log)


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
        produce_refuse(produce, result, code)
        return
    if not must_decompress(result.log, records):
        append_batch(produce, result, <uint8_t*>records.p, &info)
        return
    code = rewrite_batch(result.log, records.p, &produce.rules, &info, &rewritten,
                         &produce.bad_left, &result.bad)
    if code != BATCH_OK:
        produce_refuse(produce, result, code)
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
    elif produce.overdue:
        result.error = REQUEST_TIMED_OUT
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
    stay_begins(produce.request)
    execute(produce)
    stay_ends(produce.request)
    outcome = answer(produce)
    if produce.failed:
        for i in range(produce.count):
            free(produce.results[i].bad.list)
    if produce.results != on_stack:
        free(produce.results)
    return outcome


cdef int stall(Produce* produce) noexcept nogil:
    """A disk that hangs, or no room: wait, for no longer than the request lets its answer take."""
    cdef Request* request = produce.request
    cdef int64_t least_ms = max(produce.head.timeout_ms, <int32_t>DURABLE_WAIT_MS_MIN)
    if produce.head.acks == 0 or monotonic_ns() - request.received_ns < least_ms * 1000000:
        return H_STALL
    produce.overdue = True
    return run(produce)


cdef bint must_verify(Produce* produce) noexcept nogil:
    """Does a batch open a transaction that the coordinator has not been asked about?"""
    cdef Request* request = produce.request
    produce.terms.origin = ORIGIN_CLIENT
    produce.openings = OPENS_NONE
    produce.verifies = request.api_version >= FIRST_THAT_ADDS \
        or atomic_load_i32(&produce.broker.verify_transactions) != 0
    if not produce.transactional or produce.head.transactional_id.n < 0 or produce.denied:
        return False
    stay_begins(request)            # their logs may be held
    produce.openings = produce_openings(produce.broker, request, produce.rights, produce.checks)
    stay_ends(request)
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
    if produce_hangs(produce.broker, request):
        return stall(&produce)
    if must_verify(&produce):
        return H_CONTROL
    if produce.heavy and not request.on_io:
        return H_IO
    if not produce_has_room(produce.broker, request, produce.records_bytes, produce.count,
                            &produce.full):
        return stall(&produce)
    return run(&produce)
