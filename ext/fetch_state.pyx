"""From a Fetch request to the list of partitions to read: sessionless, full or incremental.

KIP-227: epoch -1 ends a session and asks for none; epoch 0 asks for a new one and lists all
partitions; any other continues a session, listing only what is new, changed or forgotten. The
session's lock is held while its partitions are copied out, never while logs are read.
"""
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from kbroker.ext.broker cimport broker_of
from kbroker.ext.error_codes cimport (
    FETCH_SESSION_ID_NOT_FOUND,
    FETCH_SESSION_TOPIC_ID_ERROR,
    INVALID_FETCH_SESSION_EPOCH,
    NONE,
)
from kbroker.ext.fetch_wire cimport (
    fetch_end_struct,
    fetch_read_forgotten_count,
    fetch_read_forgotten_topic,
    fetch_read_head,
    fetch_read_partition,
    fetch_read_tail,
    fetch_read_topic,
)
from kbroker.ext.log_state cimport log_unref
from kbroker.ext.named_places cimport (
    NamedPlaces,
    named_free,
    named_init,
    named_partition,
    named_topic,
)
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.segment cimport segment_unref
from kbroker.ext.sessions cimport (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    SESSIONLESS_ID,
    FetchTarget,
    SessionPartition,
    next_epoch,
    same_target,
    session_find,
    session_forget,
    session_put,
    session_remove,
    session_unref,
)
from kbroker.ext.wire cimport REQUEST_PARTITIONS_MAX, Cursor, cursor_init, get_i32

cdef enum:
    TOPIC_IDS = 13
    FEW = 8                         # partitions, compared each with each

# What one pass over the request found.
ctypedef struct Survey:
    FetchHead head
    uint32_t partitions
    uint32_t names_bytes            # of all partitions, each counted


cdef bint survey_request(Request* request, Survey* out) noexcept nogil:
    """Walk the whole request once. False: it is malformed."""
    cdef int16_t version = request.api_version
    cdef Cursor c
    cdef FetchTarget target
    cdef int32_t _i, _j, count
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    fetch_read_head(&c, version, &out.head)
    out.partitions = 0
    out.names_bytes = 0
    for _i in range(out.head.topics_count):
        count = fetch_read_topic(&c, version, &target)
        out.partitions += <uint32_t>count
        for _j in range(count):
            out.names_bytes += <uint32_t>target.name_length
            fetch_read_partition(&c, version, &target)
        fetch_end_struct(&c, version)
        if c.bad or out.partitions > REQUEST_PARTITIONS_MAX:
            return False
    count = fetch_read_forgotten_count(&c, version)
    for _i in range(count):
        for _j in range(fetch_read_forgotten_topic(&c, version, &target)):
            get_i32(&c)
        fetch_end_struct(&c, version)
    fetch_read_tail(&c, version, &out.head)
    return not c.bad              # bytes behind the end are passed over, as Kafka does


cdef Fetch* fetch_new(Request* request, const Survey* survey, uint32_t count,
                      uint32_t names_bytes) noexcept nogil:
    cdef Fetch* fetch = <Fetch*>calloc(
        1, sizeof(Fetch) + <size_t>count * sizeof(FetchPartition) + names_bytes)
    if fetch == NULL:
        request.reason = b"out of memory"
        return NULL
    fetch.broker = broker_of(request.net)
    fetch.head = survey.head
    fetch.version = request.api_version
    fetch.now_ms = request.received_ns // 1000000
    fetch.partitions = <FetchPartition*>(<uint8_t*>fetch + sizeof(Fetch))
    return fetch


cdef FetchPartition* add_partition(Fetch* fetch, const FetchTarget* target,
                                   uint8_t** names) noexcept nogil:
    """names: where the copy of the name goes; moved on."""
    cdef FetchPartition* partition = &fetch.partitions[fetch.count]
    fetch.count += 1
    partition.target = target[0]
    if target.name != NULL:
        memcpy(names[0], target.name, <size_t>target.name_length)
        partition.target.name = names[0]
        names[0] += target.name_length
    return partition


cdef void fill_from_request(Fetch* fetch, Request* request, uint32_t count) noexcept nogil:
    cdef uint8_t* names = <uint8_t*>&fetch.partitions[count]
    cdef Cursor c
    cdef FetchHead head
    cdef FetchTarget target
    cdef int32_t _i, _j, partitions
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    fetch_read_head(&c, request.api_version, &head)
    for _i in range(head.topics_count):
        partitions = fetch_read_topic(&c, request.api_version, &target)
        for _j in range(partitions):
            fetch_read_partition(&c, request.api_version, &target)
            add_partition(fetch, &target, &names)
        fetch_end_struct(&c, request.api_version)


# -- partitions that are named again --------------------------------------------------------

cdef int64_t place_among_few(const Fetch* fetch, uint32_t count,
                             const FetchTarget* target) noexcept nogil:
    cdef uint32_t i
    for i in range(count):
        if same_target(&fetch.partitions[i].target, target):
            return i
    return count


cdef int64_t place_by_table(NamedPlaces* named, const FetchTarget* target) noexcept nogil:
    """< 0: no memory."""
    cdef int64_t topic
    if target.name == NULL:
        topic = named_topic(named, target.id, 16)
    else:
        topic = named_topic(named, target.name, <size_t>target.name_length)
    return topic if topic < 0 else named_partition(named, topic, target.partition)


cdef bint collapse(Fetch* fetch, NamedPlaces* named) noexcept nogil:
    """A partition that is named again is asked for once, at its first place with what was said of
    it last, as by Apache Kafka. False: no memory."""
    cdef uint32_t i, count = 0
    cdef bint few = fetch.count <= FEW
    cdef int64_t place
    for i in range(fetch.count):
        if few:
            place = place_among_few(fetch, count, &fetch.partitions[i].target)
        else:
            place = place_by_table(named, &fetch.partitions[i].target)
        if place < 0:
            return False
        if place != i:
            fetch.partitions[place] = fetch.partitions[i]
        if place == count:
            count += 1
    fetch.count = count
    return True


cdef bint collapse_repeats(Fetch* fetch) noexcept nogil:
    cdef NamedPlaces named
    cdef bint done
    named_init(&named)
    done = collapse(fetch, &named)
    named_free(&named)
    return done


# -- sessions -------------------------------------------------------------------------------

cdef bint update_session(Session* session, Request* request) noexcept nogil:
    """With its lock held: take in what the request lists and forgets. False: there is no room."""
    cdef int16_t version = request.api_version
    cdef Cursor c
    cdef FetchHead head
    cdef FetchTarget target
    cdef int32_t _i, _j, count
    cursor_init(&c, request.p, <size_t>(request.end - request.p))
    fetch_read_head(&c, version, &head)
    for _i in range(head.topics_count):
        count = fetch_read_topic(&c, version, &target)
        for _j in range(count):
            fetch_read_partition(&c, version, &target)
            if session_put(session, &target) == NULL:
                return False
        fetch_end_struct(&c, version)
    count = fetch_read_forgotten_count(&c, version)
    for _i in range(count):
        for _j in range(fetch_read_forgotten_topic(&c, version, &target)):
            target.partition = get_i32(&c)
            session_forget(session, &target)
        fetch_end_struct(&c, version)
    return True


cdef Fetch* fetch_from_session(Request* request, const Survey* survey,
                               Session* session) noexcept nogil:
    """With its lock held: all partitions of the session, in its order."""
    cdef SessionPartition* cached = session.order.next
    cdef uint32_t names_bytes = 0
    cdef uint8_t* names
    cdef Fetch* fetch
    while cached != &session.order:
        names_bytes += <uint32_t>cached.target.name_length
        cached = cached.next
    fetch = fetch_new(request, survey, session.count, names_bytes)
    if fetch == NULL:
        return NULL
    names = <uint8_t*>&fetch.partitions[session.count]
    cached = session.order.next
    while cached != &session.order:
        add_partition(fetch, &cached.target, &names).cached = cached
        cached = cached.next
    fetch.generation = session.generation
    fetch.incremental = True
    return fetch


cdef Fetch* failed(Request* request, const Survey* survey, int16_t error) noexcept nogil:
    cdef Fetch* fetch = fetch_new(request, survey, 0, 0)
    if fetch != NULL:
        fetch.error = error
    return fetch


cdef Fetch* continue_session(Request* request, const Survey* survey) noexcept nogil:
    cdef Session* session
    cdef Fetch* fetch = NULL
    cdef int16_t error = NONE
    session = session_find(&broker_of(request.net).sessions, survey.head.session_id)
    if session == NULL:
        return failed(request, survey, FETCH_SESSION_ID_NOT_FOUND)
    pthread_mutex_lock(&session.lock)
    if session.epoch != survey.head.session_epoch:
        error = INVALID_FETCH_SESSION_EPOCH
    elif session.uses_ids != (request.api_version >= TOPIC_IDS):
        error = FETCH_SESSION_TOPIC_ID_ERROR
    else:
        session.epoch = next_epoch(session.epoch)
        session.last_used_ms = request.received_ns // 1000000
        if update_session(session, request):
            fetch = fetch_from_session(request, survey, session)
        else:
            error = FETCH_SESSION_ID_NOT_FOUND      # a full fetch, without a session, is next
    pthread_mutex_unlock(&session.lock)
    if error == FETCH_SESSION_ID_NOT_FOUND:
        session_remove(&broker_of(request.net).sessions, survey.head.session_id)
    if error != NONE:
        session_unref(session)
        return failed(request, survey, error)
    if fetch == NULL:
        session_unref(session)
    else:
        fetch.session = session
    return fetch


cdef Fetch* fetch_from_request(Request* request) noexcept nogil:
    cdef Survey survey
    cdef Fetch* fetch
    cdef int32_t epoch
    if not survey_request(request, &survey):
        request.reason = b"malformed Fetch request"
        return NULL
    epoch = survey.head.session_epoch
    if epoch != FINAL_EPOCH and epoch != INITIAL_EPOCH:
        return continue_session(request, &survey)
    if survey.head.session_id != SESSIONLESS_ID:
        session_remove(&broker_of(request.net).sessions, survey.head.session_id)
    fetch = fetch_new(request, &survey, survey.partitions, survey.names_bytes)
    if fetch == NULL:
        return NULL
    fill_from_request(fetch, request, survey.partitions)
    if not collapse_repeats(fetch):
        fetch_free(fetch)
        request.reason = b"out of memory"
        return NULL
    fetch.create_session = epoch == INITIAL_EPOCH
    return fetch


# -- letting go -----------------------------------------------------------------------------

cdef void partition_drop_read(FetchPartition* partition) noexcept nogil:
    """Forget what was read, so that it can be read again."""
    if partition.slice.segment != NULL:
        segment_unref(partition.slice.segment)
        partition.slice.segment = NULL
    partition.slice.length = 0
    free(partition.aborted)
    partition.aborted = NULL
    partition.aborted_count = -1


cdef void fetch_free(Fetch* fetch) noexcept nogil:
    cdef uint32_t i
    for i in range(fetch.count):
        partition_drop_read(&fetch.partitions[i])
        if fetch.partitions[i].log != NULL:
            log_unref(fetch.partitions[i].log)
    if fetch.session != NULL:
        session_unref(fetch.session)
    free(fetch)
