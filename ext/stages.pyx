"""Who a connection is (see stages.pxd)."""
from libc.stdint cimport int64_t
from libc.stdlib cimport free

from kbroker.ext.connection cimport (
    API_VERSIONS_KEY, FLAG_TOKENS, FLAG_VERSIONS, SETS_PRINCIPAL, SETS_STATE, SETS_TOKENS,
    STAGE_OPEN, STAGE_SASL,
)
from kbroker.ext.connections cimport connection_enter, connection_fail
from kbroker.ext.log_ring cimport LOG_WARNING
from kbroker.ext.posix cimport snprintf
from kbroker.ext.principal_uses cimport principal_drop, principal_hold
from kbroker.ext.response cimport op_deadline, op_ready

cdef enum:
    REASON_BYTES = 128
    RENEWED_EVERY_NS = 1000000000   # as Apache Kafka


cdef void refuse_key(Connection* connection, const char* text, int key) noexcept nogil:
    cdef char reason[REASON_BYTES]
    snprintf(reason, REASON_BYTES, text, key)
    connection_fail(connection, LOG_WARNING, reason)


cdef bint admits_in_session(Connection* connection, int key) noexcept nogil:
    """An open connection whose session ends."""
    cdef int64_t now_ns = connection.thread.now_ns
    if key == SASL_HANDSHAKE and (connection.renewed_ns == 0
                                  or now_ns - connection.renewed_ns >= RENEWED_EVERY_NS):
        connection.renewed_ns = now_ns
        connection.flags |= FLAG_VERSIONS
        connection_enter(connection, STAGE_SASL)
        return True
    if now_ns <= connection.session_ends_ns:
        return True
    refuse_key(connection, "api key %d after its session has ended", key)
    return False


cdef bint stage_admits(Connection* connection, const Request* request) noexcept nogil:
    cdef int key = request.api_key
    if connection.stage == STAGE_OPEN:
        return admits_in_session(connection, key)
    if connection.stage == STAGE_SASL:
        if key == API_VERSIONS_KEY and not connection.flags & FLAG_VERSIONS:
            if request.api_version <= connection.net.apis[key].max_version:
                connection.flags |= FLAG_VERSIONS
            return True
        if key == SASL_HANDSHAKE or key == SASL_AUTHENTICATE:
            connection.flags |= FLAG_VERSIONS
            return True
    refuse_key(connection, "api key %d before it said who it is", key)
    return False


cdef void stage_read_token(Request* request, uint8_t* frame, uint32_t length) noexcept nogil:
    request.frame = frame
    request.p = frame
    request.end = frame + length
    request.api_key = SASL_AUTHENTICATE
    request.api_version = TOKEN_VERSION
    request.correlation_id = 0
    request.client_id = NULL
    request.client_id_length = 0
    request.flexible = False


cdef void become(Connection* connection, const Job* job) noexcept nogil:
    """What was cached for another principal goes."""
    principal_drop(connection.net, connection.principal)
    connection.principal = job.principal
    principal_hold(connection.net, connection.principal)
    connection.session_ends_ns = 0
    if job.session_ms > 0:
        connection.session_ends_ns = connection.thread.now_ns + job.session_ms * 1000000
    connection.flags &= ~<uint32_t> FLAG_TOKENS
    if connection.auth != NULL and connection.net.auth_free != NULL:
        connection.net.auth_free(connection.auth)
    connection.auth = NULL
    connection_enter(connection, STAGE_OPEN)


cdef void stage_settle(Connection* connection, Job* job) noexcept nogil:
    if job.sets & SETS_STATE:
        free(connection.state)
        connection.state = job.state
        connection.state_bytes = job.state_bytes
        job.state = NULL
    if job.sets & SETS_TOKENS:
        connection.flags |= FLAG_TOKENS
    if job.sets & SETS_PRINCIPAL:
        become(connection, job)


cdef void refused(Op* op) noexcept nogil:
    cdef Connection* connection = op.connection
    op_ready(op)
    connection_fail(connection, LOG_WARNING, NULL)


cdef void stage_refuse(Op* op, const Job* job) noexcept nogil:
    if job.refused_ms <= 0:
        refused(op)
        return
    op.on_timeout = refused
    op_deadline(op, job.refused_ms)
