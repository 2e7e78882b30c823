"""A frame becomes a request (see frame.pxd)."""
from libc.stdint cimport int16_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_exchange_i64, atomic_fence, atomic_load_i32, atomic_tally_i64,
)
from kbroker.ext.clock cimport monotonic_ns, realtime_ms
from kbroker.ext.connection cimport (
    API_KEYS_MAX, API_VERSIONS_KEY, Api, BLOCK_STALL, FLAG_CLOSES, FLAG_TOKENS, H_CLOSE, H_CONTROL,
    H_IO, H_NONE,
    H_STALL, Job, NetThread, STAGE_OPEN,
)
from kbroker.ext.connections cimport (
    connection_close, connection_fail, connection_mute, connection_stall,
)
from kbroker.ext.debug cimport debug_assert
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_WARNING
from kbroker.ext.marks cimport request_begins, request_ends
from kbroker.ext.posix cimport snprintf
from kbroker.ext.quotas cimport Hold, quota_begin
from kbroker.ext.queue cimport request_submit
from kbroker.ext.rights cimport Rights, rights_unref
from kbroker.ext.stages cimport stage_admits, stage_read_token
from kbroker.ext.stays cimport Stay
from kbroker.ext.wire cimport Cursor, cursor_init, get_i16, get_i32, skip_tags, take

cdef enum:
    REASON_BYTES = 128


cdef int frame_parse_header(Net* net, Request* request, uint8_t* frame,
                            uint32_t length) noexcept nogil:
    cdef Cursor c
    cursor_init(&c, frame, length)
    request.frame = frame
    request.end = frame + length
    request.api_key = get_i16(&c)
    request.api_version = get_i16(&c)
    request.correlation_id = get_i32(&c)
    request.client_id_length = get_i16(&c)
    request.client_id = NULL
    request.flexible = False
    if request.client_id_length >= 0:
        request.client_id = <const char*> take(&c, <size_t> request.client_id_length)
    else:
        request.client_id_length = 0        # any length below 0 says null, as with Kafka
    if c.bad:
        return -1
    if 0 <= request.api_key < API_KEYS_MAX:
        request.flexible = is_flexible(&net.apis[request.api_key], request.api_version)
    if request.flexible:
        skip_tags(&c)
        if c.bad and not is_unknown_api_versions(net, request):
            return -1
    request.p = <uint8_t*> c.p
    return 0


cdef inline bint is_flexible(const Api* api, int16_t version) noexcept nogil:
    return api.first_flexible >= 0 and version >= api.first_flexible


cdef bint is_unknown_api_versions(Net* net, Request* request) noexcept nogil:
    """A version of the future, which gets an answer whatever stands in its header."""
    if request.api_key != API_VERSIONS_KEY:
        return False
    return request.api_version > net.apis[API_VERSIONS_KEY].max_version


cdef void close_for(Connection* connection, const char* text, int a, int b) noexcept nogil:
    cdef char reason[REASON_BYTES]
    snprintf(reason, REASON_BYTES, text, a, b)
    connection_fail(connection, LOG_WARNING, reason)


cdef bint is_served(Connection* connection, Request* request) noexcept nogil:
    """The API and its version are known; else the connection is closed, as Kafka does."""
    cdef Api* api
    cdef int16_t key = request.api_key
    if key < 0 or key >= API_KEYS_MAX or not connection.net.apis[key].known:
        close_for(connection, "api key %d (version %d) is not known", key, request.api_version)
        return False
    api = &connection.net.apis[key]
    if key == API_VERSIONS_KEY or api.min_version <= request.api_version <= api.max_version:
        return True
    close_for(connection, "version %d of api key %d is not supported", request.api_version, key)
    return False


cdef int run(Request* request) noexcept nogil:
    """Call the handler, or queue the request for another thread."""
    cdef Api* api = &request.net.apis[request.api_key]
    cdef int outcome = H_CONTROL
    if api.handler != NULL:
        outcome = api.handler(request)
    if outcome == H_CONTROL:
        outcome = request_submit(request, &request.net.control, False)
        if outcome != H_CONTROL:
            rights_unref(<Rights*> request.asked)
            request.asked = NULL
    elif outcome == H_IO:
        return request_submit(request, &request.net.io, False)
    return outcome


cdef void fill(Connection* connection, Request* request) noexcept nogil:
    cdef NetThread* thread = connection.thread
    request.net = connection.net
    request.thread = thread
    request.connection = connection
    request.op = NULL
    request.on_io = False
    request.turns = NULL
    request.stay = &thread.runner.stay
    request.received_ns = connection.stalled_ns if connection.stalled_ns else thread.now_ns
    request.wall_ms = thread.wall_ms
    request.principal = connection.principal
    request.auth = &connection.auth
    request.asked = NULL
    request.listener = connection.listener
    request.verdicts = NULL
    request.quota = NULL
    request.throttle_ms = 0
    request.reason = NULL
    request.reply.thread = thread
    request.reply.request = request
    request.reply.frame = NULL
    request.reply.regions = NULL
    # Behind an unanswered request the answer goes into an Op, see reply_begin.
    request.reply.out = &connection.out if connection.ops == NULL else NULL


cdef void fill_reply(Request* request) noexcept nogil:
    request.reply.region_bytes = 0
    request.reply.correlation_id = request.correlation_id
    request.reply.api_key = request.api_key
    request.reply.api_version = request.api_version
    # ApiVersions keeps response header v0, so that any client can read it (KIP-511).
    request.reply.tagged_header = request.flexible and request.api_key != API_VERSIONS_KEY


cdef bint read_frame(Connection* connection, Request* request, uint8_t* frame,
                     uint32_t length) noexcept nogil:
    """What is asked, where it may be; else the connection is closed."""
    if connection.stage != STAGE_OPEN and connection.flags & FLAG_TOKENS:
        stage_read_token(request, frame, length)
        return True
    if frame_parse_header(connection.net, request, frame, length) < 0:
        close_for(connection, "a frame of %d bytes holds no request header", <int> length, 0)
        return False
    if (connection.stage != STAGE_OPEN or connection.session_ends_ns != 0) \
            and not stage_admits(connection, request):
        return False
    return is_served(connection, request)


cdef int frame_handle(Connection* connection, uint8_t* frame, uint32_t length) noexcept nogil:
    cdef Request request
    cdef int outcome
    cdef NetThread* thread = connection.thread
    if not read_frame(connection, &request, frame, length):
        return FRAME_TAKEN
    fill(connection, &request)
    fill_reply(&request)
    request_begins(&request)
    if atomic_load_i32(&connection.net.quotas_on):
        quota_begin(&request)
    outcome = run(&request)
    if outcome == H_STALL:
        # Say that somebody stalls, then try once more: see net_unstall_all.
        atomic_exchange_i64(&connection.net.stalled, 1)
        atomic_fence()
        outcome = run(&request)
        if outcome == H_STALL:
            connection.stalled_ns = request.received_ns
            if not connection.flags & FLAG_CLOSES:
                connection_stall(connection, BLOCK_STALL)
                return FRAME_STALLED
            outcome = H_NONE            # nobody is there any more
    debug_assert(request.reply.regions == NULL, "an answer neither ended nor abandoned")
    connection.stalled_ns = 0
    request_ends(&request, length, outcome == H_NONE)
    atomic_tally_i64(&thread.counters.requests, 1)
    if request.throttle_ms > 0:
        connection_mute(connection, request.throttle_ms)
    if outcome == H_CLOSE:
        connection_fail(connection, LOG_WARNING, request.reason)
    if connection.flags & FLAG_CLOSES:
        connection_close(connection, LOG_DEBUG, "closed while the disk hung")
    return FRAME_TAKEN


cdef int job_handle(Job* job, uint64_t* turns, Stay* stay) noexcept nogil:
    cdef Request request
    cdef int outcome
    memset(&request, 0, sizeof(Request))
    request.net = job.net
    request.op = job.op
    request.frame = job.frame
    request.p = job.frame + job.body
    request.end = job.frame + job.length
    if job.client_id >= 0:
        request.client_id = <const char*> job.frame + job.client_id
    request.client_id_length = job.client_id_length
    request.correlation_id = job.correlation_id
    request.api_key = job.api_key
    request.api_version = job.api_version
    request.flexible = job.flexible
    request.on_io = True
    request.turns = turns
    request.stay = stay
    request.received_ns = job.received_ns
    request.wall_ms = realtime_ms()
    request.principal = job.principal
    request.listener = job.listener
    request.verdicts = job.verdicts
    request.quota = job.quota
    request.auth = &job.auth
    request.reply = job.op.reply
    request.reply.request = &request
    request.begun_ns = job.op.times.begun = monotonic_ns()
    if job.quota != NULL:
        (<Hold*> job.quota).mark_ns = request.begun_ns
    outcome = job.net.apis[job.api_key].handler(&request)
    job.op.times.done = monotonic_ns()
    job.throttle_ms = request.throttle_ms
    job.reason = request.reason
    return outcome
