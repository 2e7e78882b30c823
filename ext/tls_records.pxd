"""Records of TLS on their way to the socket: a BIO of our own, under the broker's connections.

OpenSSL's own BIO gives each record of 16 KiB to the socket by itself: a fetch of 1 MiB is 64 system
calls and as many small segments. This one collects what a burst of writes makes, which one send
then takes. What the socket has no room for is kept by the connection, at its size and no longer
than until it is sent; the records of a stream are numbered, so nothing may overtake or follow what
is lost.

Between bursts OpenSSL writes straight to the socket (alerts, the goodbye), and is told to come
again while something is kept. Handshakes have gone through OpenSSL's own BIO, which knows the
kernel's TLS; reading stays with it. One thread at a time uses all of it, as it does a `Tls`.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t

from kbroker.ext.tls cimport Tls

cdef enum:
    RECORD_BYTES_MAX = 16384    # in the clear, by RFC 8446
    BURST_RECORDS = 8
    BURST_BYTES = BURST_RECORDS * RECORD_BYTES_MAX
    # A record may grow by 2 KiB (RFC 5246), and OpenSSL may put an alert or new keys among them.
    RECORDS_BYTES = BURST_RECORDS * (RECORD_BYTES_MAX + 2048) + 4096

# Before the first records_attach, with the GIL; MemoryError.
cdef int records_prepare() except -1
# After the handshake. kept_total has what all connections of the thread keep. False: no memory.
cdef bint records_attach(Tls* tls, int fd, int64_t* kept_total) noexcept nogil
# Collect at p, which has room for RECORDS_BYTES; nothing may be kept.
cdef void records_collect(Tls* tls, uint8_t* p) noexcept nogil
# Ends that, and sends. 1: all of it is gone; TLS_WANTS_WRITE: the rest is kept; TLS_FAILED: `why`.
cdef int records_send(Tls* tls) noexcept nogil
# The same of what is kept.
cdef int records_send_kept(Tls* tls) noexcept nogil
