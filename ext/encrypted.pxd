"""TLS under a connection of the broker: its handshake, then its bytes in the clear (tls.pxd).

A handshake begins when the first record is there whole: until then a connection costs no more than
any other, however slowly it is sent, and what is no TLS is told at once. Handshakes stand in a
queue of their thread, which gives them a millisecond of each turn: thousands that come at once hold
up nobody who is connected. kbroker.handshake.timeout.ms closes what does not get on.

    STAGE_TLS        the handshake
    STAGE_IDENTITY   the client showed a certificate: its subject goes to the control thread, which
                     says who that is, once
    then             STAGE_SASL or STAGE_OPEN, by what the listener speaks

Of what a client sends, several records may wait in OpenSSL's buffer when the socket is empty: so
FLAG_READABLE is taken away only when OpenSSL asks for more bytes, never because a read was short.
Of what goes to it, up to eight records of 16 KiB are made at a time, from the bytes and file
regions that are next, and given to the socket by one send (tls_records.pxd). What is encrypted has
left the output; where the socket takes only part of it the connection keeps the rest, which goes
before anything else. Above 16 MiB kept on a thread it is one record at a time. Where the kernel
encrypts (tls_kernel_sends) the socket is written to as if it had no TLS, sendfile included.

All of it runs on the network thread of the connection.
"""
from libc.stdint cimport int64_t

from kbroker.ext.connection cimport Connection, NetThread
from kbroker.ext.posix cimport ssize_t
from kbroker.ext.sockets cimport iovec_t

cdef enum:
    IDENTITY_KEY = -2           # API key of the job that asks who a certificate's owner is

# Go on with the handshake, or with asking who it is, soon.
cdef void handshake_later(Connection* connection) noexcept nogil
# Goes on with some handshakes of the queue.
cdef void thread_handshakes(NetThread* thread) noexcept nogil
# Bytes that were read, in the clear; 0: none now, or the connection is closed.
cdef ssize_t encrypted_read(Connection* connection, iovec_t* parts, int count) noexcept nogil
# Some records of the output; false when the socket takes no more, or the connection is closed.
cdef bint encrypted_send(Connection* connection) noexcept nogil
# Whether the socket has all of the output; of any connection, in the clear too.
cdef bint encrypted_is_sent(Connection* connection) noexcept nogil
