"""Who a connection is: what it may ask before that is known, and what becomes known (KIP-368).

    SECURITY_PLAINTEXT       open, of nobody
    SECURITY_SASL_PLAINTEXT  STAGE_SASL, then open
    SECURITY_SSL             STAGE_TLS, STAGE_IDENTITY where it showed a certificate, then open
    SECURITY_SASL_SSL        STAGE_TLS, STAGE_SASL, then open

In STAGE_SASL only ApiVersions, once, SaslHandshake and SaslAuthenticate pass, one at a time; the
control thread answers the latter two and remembers the exchange in a few bytes that the connection
keeps for it (`state`), so that nothing is left of one that goes away. Who is not open within
kbroker.handshake.timeout.ms is closed, whatever it sends. A session may end: past that only a
SaslHandshake passes, which begins STAGE_SASL again, at most once a second.

All of it runs on the network thread of the connection.
"""
from libc.stdint cimport uint8_t, uint32_t

from kbroker.ext.connection cimport Connection, Job, Op, Request

cdef enum SaslKey:
    SASL_HANDSHAKE = 17
    SASL_AUTHENTICATE = 36
    TOKEN_VERSION = -1          # of a SaslAuthenticate that is a bare token

# Whether the request may pass in its connection's stage, or within its session; else it is closed.
cdef bint stage_admits(Connection* connection, const Request* request) noexcept nogil
# A frame without header, where those are expected.
cdef void stage_read_token(Request* request, uint8_t* frame, uint32_t length) noexcept nogil
# What an answer of the control thread makes of its connection, before the next frame is looked at.
cdef void stage_settle(Connection* connection, Job* job) noexcept nogil
# Answer and close, after job.refused_ms; the connection is not read meanwhile.
cdef void stage_refuse(Op* op, const Job* job) noexcept nogil
