"""ListOffsets (key 2), versions 1 to 11: offsets of a partition by what they mean, or by time.

Behavior: timestamps below zero have a meaning: -1 the end that the reader may see (high watermark,
or last stable offset with read_committed), -2 the log start offset, -3 the record with the
greatest timestamp, -4 the start of what is on local disk, which is the log start, -5 the end of
what is in tiered storage and -6 the start of what is not yet there, both of which nothing is here.
A time gets the first record at or after it; none gets offset -1. A timestamp that the version does
not have gets UNSUPPORTED_VERSION. A partition that is asked for more than once is refused, once.

Ends and starts are answered by the network thread at once, but for an end of records that were
acknowledged and are not durable yet (list_offsets_wait.pxd). What looks for a record reads
segments, which may be cold, and goes to the I/O pool, where the same code runs.

Rights: a request that wants one that is not known goes to the control thread first, and from there
to the pool (rights.pxd).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_load_i32, atomic_load_i64
from kbroker.ext.broker cimport Broker, COUNTED_LIST_OFFSETS, broker_of, count_answer
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport H_CLOSE, H_CONTROL, H_DONE, H_IO, Request, STOP_NOW
from kbroker.ext.error_codes cimport (
    FENCED_LEADER_EPOCH, INVALID_REQUEST, KAFKA_STORAGE_ERROR, NONE, TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH, UNKNOWN_TOPIC_OR_PARTITION, UNSUPPORTED_VERSION, error_of_log,
)
from kbroker.ext.list_offsets_wait cimport LateOffsets, late_add, late_answer, late_free
from kbroker.ext.list_offsets_wire cimport (
    ListOffsetsHead, ListOffsetsTarget, ListOffsetsTopic, list_offsets_end_topic,
    list_offsets_head_bytes_max, list_offsets_put_end, list_offsets_put_head,
    list_offsets_put_partition, list_offsets_put_throttle, list_offsets_put_topic,
    list_offsets_read_head, list_offsets_read_partition, list_offsets_read_tail,
    list_offsets_read_topic, list_offsets_topic_bytes_max,
)
from kbroker.ext.log_find cimport (
    TimestampOffset, log_offset_for_timestamp, log_offset_of_max_timestamp,
)
from kbroker.ext.log_read cimport log_epoch_at
from kbroker.ext.log_state cimport (
    LOG_OK, Log, Watermarks, log_acknowledged, log_ref, log_unref, log_usable, log_watermarks,
)
from kbroker.ext.named_places cimport (
    NamedPlaces, named_free, named_init, named_partition, named_topic,
)
from kbroker.ext.network cimport turn_begin, turn_end
from kbroker.ext.quotas cimport Hold, QUOTA_REQUEST, quota_answer
from kbroker.ext.registry cimport Topic, registry_by_name, topic_log
from kbroker.ext.response cimport reply_abandon, reply_begin, reply_end
from kbroker.ext.rights cimport (
    RIGHT_TOPIC_DESCRIBE, RULING_ALLOWED, RULING_UNKNOWN, Rights, rights_find, rights_more,
    rights_of, rights_put, rights_unref,
)
from kbroker.ext.wire cimport (
    REQUEST_PARTITIONS_MAX, TOPIC_NAME_BYTES_MAX, Cursor, Writer, cursor_init, writer_init,
)

cdef enum Meaning:
    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    EARLIEST_LOCAL = -4
    LATEST_TIERED = -5
    EARLIEST_PENDING_UPLOAD = -6

# How often the request names a partition.
cdef enum Naming:
    NAMED_ONCE = 0
    NAMED_TWICE                     # this is the first time
    NAMED_BEFORE


# One request while it is handled; on the stack of handle_list_offsets.
ctypedef struct ListOffsets:
    Request* request
    Broker* broker
    ListOffsetsHead head
    uint32_t count                  # partitions
    uint32_t bytes_max              # of the answer
    bint searches                   # a record is to be found
    bint checks                     # there is an authorizer
    bint unsettled                  # a right is not known
    const Rights* rights
    uint8_t* namings                # Naming, by partition; NULL: each is named once
    Log* awaited                    # a reference; of the partition at hand, NULL: nothing is
    int64_t awaited_mark
    LateOffsets late


# -- reading --------------------------------------------------------------------------------

cdef inline int ruling_of(const ListOffsets* asked, const ListOffsetsTopic* topic) noexcept nogil:
    if not asked.checks:
        return RULING_ALLOWED
    return rights_find(asked.rights, RIGHT_TOPIC_DESCRIBE, topic.name.p, topic.name.n)


cdef inline bint is_search(int64_t timestamp) noexcept nogil:
    return timestamp >= 0 or timestamp == MAX_TIMESTAMP


cdef void begin(const ListOffsets* asked, Cursor* c, ListOffsetsHead* head) noexcept nogil:
    cdef Request* request = asked.request
    cursor_init(c, request.p, <size_t>(request.end - request.p))
    list_offsets_read_head(c, request.api_version, head)


cdef bint survey(ListOffsets* asked) noexcept nogil:
    """Walk the whole request once. False: it is malformed."""
    cdef int16_t version = asked.request.api_version
    cdef Cursor c
    cdef ListOffsetsTopic topic
    cdef ListOffsetsTarget target
    cdef int32_t _i, _j
    begin(asked, &c, &asked.head)
    asked.bytes_max = list_offsets_head_bytes_max()
    for _i in range(asked.head.topics_count):
        list_offsets_read_topic(&c, version, &topic)
        asked.count += <uint32_t>topic.partitions_count
        if c.bad or asked.count > REQUEST_PARTITIONS_MAX:
            return False
        asked.bytes_max += list_offsets_topic_bytes_max(&topic)
        asked.unsettled |= ruling_of(asked, &topic) == RULING_UNKNOWN
        for _j in range(topic.partitions_count):
            list_offsets_read_partition(&c, version, &target)
            asked.searches |= is_search(target.timestamp)
        list_offsets_end_topic(&c, version)
    list_offsets_read_tail(&c, version)
    return not c.bad                # bytes behind the end are passed over, as Kafka does


# -- partitions that are named again --------------------------------------------------------

ctypedef struct Repeats:
    NamedPlaces named
    uint32_t* firsts                # where a place was first named, by its number


cdef bint name_place(ListOffsets* asked, Repeats* repeats, int64_t topic, int32_t partition,
                     uint32_t at) noexcept nogil:
    """False: no memory."""
    cdef int64_t fresh = repeats.named.places.count
    cdef int64_t number = named_partition(&repeats.named, topic, partition)
    if number == fresh:
        repeats.firsts[number] = at
    elif number >= 0:
        asked.namings[repeats.firsts[number]] = NAMED_TWICE
        asked.namings[at] = NAMED_BEFORE
    return number >= 0


cdef bint name_topic(ListOffsets* asked, Repeats* repeats, Cursor* c,
                     const ListOffsetsTopic* topic, uint32_t at) noexcept nogil:
    """`at`: the number of its first partition. What no topic is called is not there as often as it
    is asked for, and not copied. False: no memory."""
    cdef bint fits = topic.name.n <= TOPIC_NAME_BYTES_MAX
    cdef ListOffsetsTarget target
    cdef int64_t number = 0
    cdef int32_t i
    if fits:
        number = named_topic(&repeats.named, topic.name.p, <size_t>topic.name.n)
    for i in range(topic.partitions_count):
        list_offsets_read_partition(c, asked.request.api_version, &target)
        if fits and (number < 0 or not name_place(asked, repeats, number, target.partition,
                                                  at + <uint32_t>i)):
            return False
    return True


cdef bint name_all(ListOffsets* asked, Repeats* repeats) noexcept nogil:
    cdef Cursor c
    cdef ListOffsetsHead head
    cdef ListOffsetsTopic topic
    cdef uint32_t at = 0
    cdef int32_t _i
    begin(asked, &c, &head)
    for _i in range(head.topics_count):
        list_offsets_read_topic(&c, asked.request.api_version, &topic)
        if not name_topic(asked, repeats, &c, &topic, at):
            return False
        at += <uint32_t>topic.partitions_count
        list_offsets_end_topic(&c, asked.request.api_version)
    return True


cdef bint find_repeats(ListOffsets* asked) noexcept nogil:
    """Sets asked.namings. False: no memory."""
    cdef Repeats repeats
    cdef bint done
    if asked.count < 2:
        return True
    named_init(&repeats.named)
    asked.namings = <uint8_t*>calloc(asked.count, 1)
    repeats.firsts = <uint32_t*>calloc(asked.count, sizeof(uint32_t))
    done = asked.namings != NULL and repeats.firsts != NULL and name_all(asked, &repeats)
    free(repeats.firsts)
    named_free(&repeats.named)
    return done


# -- one partition --------------------------------------------------------------------------

cdef bint has_timestamp(int16_t version, int64_t timestamp) noexcept nogil:
    """Does the version have this one?"""
    if timestamp == MAX_TIMESTAMP:
        return version >= 7
    if timestamp == EARLIEST_LOCAL:
        return version >= 8
    if timestamp == LATEST_TIERED:
        return version >= 9
    if timestamp == EARLIEST_PENDING_UPLOAD:
        return version >= 11
    return timestamp >= EARLIEST


cdef int16_t check_epoch(int32_t told, int32_t known) noexcept nogil:
    if told == -1 or told == known:
        return NONE
    return FENCED_LEADER_EPOCH if told < known else UNKNOWN_LEADER_EPOCH


cdef int16_t find_log(ListOffsets* asked, const ListOffsetsTopic* topic,
                      const ListOffsetsTarget* target, Log** out) noexcept nogil:
    """A log that may be asked, borrowed until the turn ends; or an error. Looked up for each
    partition, as a search ends the turn."""
    cdef Topic* found = NULL
    cdef int16_t error
    if topic.name.n <= TOPIC_NAME_BYTES_MAX:
        found = registry_by_name(&asked.broker.registry, topic.name.p, topic.name.n)
    if found == NULL or target.partition < 0 or target.partition >= found.partitions_count:
        return UNKNOWN_TOPIC_OR_PARTITION
    out[0] = topic_log(found, target.partition)
    if out[0] == NULL:
        return KAFKA_STORAGE_ERROR
    error = error_of_log(log_usable(out[0]))
    if error != NONE:
        return error
    return check_epoch(target.current_leader_epoch, atomic_load_i32(&out[0].leader_epoch))


cdef int64_t end_of_sight(const ListOffsets* asked, const Watermarks* at) noexcept nogil:
    """The end of what the asker may see."""
    if asked.head.replica_id != -1:
        return at.leo
    return at.lso if asked.head.isolation == 1 else at.hw


cdef void set_nothing(TimestampOffset* out) noexcept nogil:
    out.offset = out.timestamp = -1
    out.leader_epoch = -1


cdef void await_durable(ListOffsets* asked, Log* log, int64_t mark) noexcept nogil:
    log_ref(log)
    asked.awaited = log
    asked.awaited_mark = mark


cdef int16_t search(ListOffsets* asked, Log* log, int64_t timestamp,
                    TimestampOffset* out) noexcept nogil:
    """In the pool. Outside of the turn: who changes the table of topics waits for turns, and is not
    to wait for the disk."""
    cdef Watermarks at
    cdef int code
    log_ref(log)
    turn_end(asked.request.turns)
    if timestamp == MAX_TIMESTAMP:
        code = log_offset_of_max_timestamp(log, out)
    else:
        code = log_offset_for_timestamp(log, timestamp, out)
    turn_begin(asked.request.turns)
    log_watermarks(log, &at)
    if code != LOG_OK:
        set_nothing(out)
    elif out.offset >= end_of_sight(asked, &at):
        if out.offset >= at.hw:
            await_durable(asked, log, out.offset + 1)
        else:
            set_nothing(out)
    log_unref(log)
    return error_of_log(code)


cdef int16_t look_up(ListOffsets* asked, Log* log, int64_t timestamp,
                     TimestampOffset* out) noexcept nogil:
    """An error, or NONE and what was found."""
    cdef Watermarks at
    cdef int64_t acknowledged
    if is_search(timestamp):
        return search(asked, log, timestamp, out)
    log_watermarks(log, &at)
    if timestamp == LATEST:
        acknowledged = log_acknowledged(log)
        out.offset = end_of_sight(asked, &at)
        if asked.head.replica_id == -1 and at.hw < acknowledged:
            out.offset = acknowledged
            await_durable(asked, log, acknowledged)
        out.leader_epoch = atomic_load_i32(&log.leader_epoch)
    elif timestamp == EARLIEST or timestamp == EARLIEST_LOCAL:
        out.offset = at.log_start
        out.leader_epoch = log_epoch_at(log, at.log_start)
    return NONE


cdef int16_t find(ListOffsets* asked, const ListOffsetsTopic* topic,
                  const ListOffsetsTarget* target, TimestampOffset* out) noexcept nogil:
    cdef Log* log = NULL
    cdef int16_t error
    if not has_timestamp(asked.request.api_version, target.timestamp):
        return UNSUPPORTED_VERSION
    error = find_log(asked, topic, target, &log)
    if error != NONE:
        return error
    return look_up(asked, log, target.timestamp, out)


# -- the answer -----------------------------------------------------------------------------

cdef inline int naming_of(const ListOffsets* asked, uint32_t number) noexcept nogil:
    return NAMED_ONCE if asked.namings == NULL else asked.namings[number]


cdef int32_t count_results(const ListOffsets* asked, const ListOffsetsTopic* topic, bint denied,
                           uint32_t at) noexcept nogil:
    cdef int32_t count = 0
    cdef int32_t i
    for i in range(topic.partitions_count):
        count += denied or naming_of(asked, at + <uint32_t>i) != NAMED_BEFORE
    return count


cdef bint note_late(ListOffsets* asked, uint8_t* error_at) noexcept nogil:
    """False: no memory."""
    cdef bint noted = late_add(&asked.late, asked.awaited, asked.awaited_mark, error_at)
    log_unref(asked.awaited)
    asked.awaited = NULL
    return noted


cdef bint answer_partition(ListOffsets* asked, Writer* w, const ListOffsetsTopic* topic,
                           const ListOffsetsTarget* target, bint denied,
                           int naming) noexcept nogil:
    """False: no memory."""
    cdef uint8_t* error_at = w.p + 4    # behind the partition's number
    cdef TimestampOffset found
    cdef int16_t error
    set_nothing(&found)
    if denied:
        error = TOPIC_AUTHORIZATION_FAILED
    elif naming == NAMED_BEFORE:
        return True
    elif naming == NAMED_TWICE:
        error = INVALID_REQUEST
    else:
        error = find(asked, topic, target, &found)
    list_offsets_put_partition(w, asked.request.api_version, target.partition, error, &found)
    count_answer(asked.broker, COUNTED_LIST_OFFSETS, error)
    return asked.awaited == NULL or note_late(asked, error_at)


cdef inline bint is_stopping(const Request* request) noexcept nogil:
    return atomic_load_i32(&request.net.stopping) == STOP_NOW


cdef bint write_topics(ListOffsets* asked, Writer* w) noexcept nogil:
    """False: request.reason says why."""
    cdef int16_t version = asked.request.api_version
    cdef Cursor c
    cdef ListOffsetsHead head
    cdef ListOffsetsTopic topic
    cdef ListOffsetsTarget target
    cdef uint32_t at = 0
    cdef bint denied
    cdef int32_t _i, _j
    begin(asked, &c, &head)
    list_offsets_put_head(w, version, head.topics_count)
    for _i in range(head.topics_count):
        list_offsets_read_topic(&c, version, &topic)
        denied = ruling_of(asked, &topic) != RULING_ALLOWED
        list_offsets_put_topic(w, version, &topic.name, count_results(asked, &topic, denied, at))
        for _j in range(topic.partitions_count):
            if asked.searches and is_stopping(asked.request):
                asked.request.reason = b"the broker stops"
                return False
            list_offsets_read_partition(&c, version, &target)
            if not answer_partition(asked, w, &topic, &target, denied, naming_of(asked, at)):
                asked.request.reason = b"out of memory"
                return False
            at += 1
        list_offsets_end_topic(&c, version)
        list_offsets_put_end(w, version)
    list_offsets_put_end(w, version)
    return True


cdef int64_t throttle(Request* request) noexcept nogil:
    cdef int64_t now_ms
    if request.quota != NULL:
        now_ms = monotonic_ns() // 1000000 if request.on_io else request.thread.now_ms
        request.throttle_ms = quota_answer(request.net, <Hold*>request.quota, QUOTA_REQUEST, 0,
                                           now_ms)
    return request.throttle_ms


cdef int answer(ListOffsets* asked) noexcept nogil:
    cdef Request* request = asked.request
    cdef uint8_t* body = NULL
    cdef Writer w, head
    if find_repeats(asked):
        body = reply_begin(&request.reply, asked.bytes_max)
    if body == NULL:
        request.reason = b"out of memory"
        return H_CLOSE
    writer_init(&w, body, asked.bytes_max)
    if not write_topics(asked, &w):
        late_free(&asked.late)
        reply_abandon(&request.reply)
        return H_CLOSE
    # Known only now: what it took to find the offsets counts.
    writer_init(&head, body, asked.bytes_max)
    list_offsets_put_throttle(&head, request.api_version, <int32_t>throttle(request))
    if asked.late.count > 0:
        return late_answer(request, &asked.late, body, <uint32_t>(w.p - body), asked.head.isolation)
    reply_end(&request.reply, <uint32_t>(w.p - body))
    return H_DONE


# -- the handler ----------------------------------------------------------------------------

cdef Rights* wanted_rights(const ListOffsets* asked, int64_t version) noexcept nogil:
    """Those that are not known yet as unknown; NULL: no memory."""
    cdef Rights* rights = rights_more(asked.rights, version)
    cdef Cursor c
    cdef ListOffsetsHead head
    cdef ListOffsetsTopic topic
    cdef ListOffsetsTarget target
    cdef int32_t _i, _j
    begin(asked, &c, &head)
    for _i in range(head.topics_count):
        list_offsets_read_topic(&c, asked.request.api_version, &topic)
        if rights == NULL:
            return NULL
        if not rights_put(rights, RIGHT_TOPIC_DESCRIBE, topic.name.p, topic.name.n,
                          ruling_of(asked, &topic)):
            rights_unref(rights)
            return NULL
        for _j in range(topic.partitions_count):
            list_offsets_read_partition(&c, asked.request.api_version, &target)
        list_offsets_end_topic(&c, asked.request.api_version)
    return rights


cdef int ask(const ListOffsets* asked, int64_t version) noexcept nogil:
    """Have the control thread settle the rights."""
    asked.request.asked = wanted_rights(asked, version)
    if asked.request.asked == NULL:
        asked.request.reason = b"out of memory"
        return H_CLOSE
    return H_CONTROL


cdef int handle_list_offsets(Request* request) noexcept nogil:
    cdef ListOffsets asked
    cdef int64_t version
    cdef int outcome
    memset(&asked, 0, sizeof(ListOffsets))
    asked.request = request
    asked.broker = broker_of(request.net)
    version = atomic_load_i64(&asked.broker.rights_version)
    if version != 0:
        asked.checks = True
        asked.rights = rights_of(request, version)
    if not survey(&asked):
        request.reason = b"malformed ListOffsets request"
        return H_CLOSE
    if not request.on_io:
        if asked.unsettled:
            return ask(&asked, version)
        if asked.searches:
            return H_IO
    outcome = answer(&asked)
    free(asked.namings)
    return outcome
