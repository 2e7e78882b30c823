"""Sending (see output.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint32_t, uint64_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_tally_i64
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, BLOCK_FAILED, BLOCK_OUTPUT, Chunk, FLAG_IN_FLUSH, FLAG_UNWRITABLE, Out, Region,
)
from kbroker.ext.connections cimport connection_close
from kbroker.ext.encrypted cimport encrypted_is_sent, encrypted_send
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_ERROR, LOG_WARNING
from kbroker.ext.marks cimport marks_flush, marks_sent
from kbroker.ext.out_stream cimport out_region_done, out_sent
from kbroker.ext.posix cimport EAGAIN, EINTR, errno, off_t, ssize_t
from kbroker.ext.quotas cimport quota_pause, quota_resume
from kbroker.ext.response cimport connection_unblock
from kbroker.ext.sockets cimport (
    MSG_DONTWAIT, MSG_MORE, MSG_NOSIGNAL, iovec_t, msghdr_t, send, sendfile, sendmsg,
)
from kbroker.ext.tls cimport Tls

cdef enum:
    PARTS_MAX = 32
    SENDFILE_BYTES_MAX = 1 << 30


cdef ssize_t socket_send(Connection* connection, iovec_t* parts, int count,
                         int flags) noexcept nogil:
    """In the clear, or encrypted by the kernel."""
    cdef msghdr_t message
    if count == 1:
        return send(connection.fd, parts[0].iov_base, parts[0].iov_len, flags)
    memset(&message, 0, sizeof(msghdr_t))
    message.msg_iov = parts
    message.msg_iovlen = <size_t> count
    return sendmsg(connection.fd, &message, flags)


cdef bint is_sent_on(Connection* connection, ssize_t sent) noexcept nogil:
    """After a send that took nothing: whether to go on at once."""
    if sent < 0 and errno == EINTR:
        return True
    if sent < 0 and errno == EAGAIN:
        connection.flags |= FLAG_UNWRITABLE
        return False
    connection_close(connection, LOG_DEBUG, "reset while sending")
    return False


cdef bint send_bytes(Connection* connection) noexcept nogil:
    """Bytes up to the next region; false when the socket takes no more."""
    cdef iovec_t parts[PARTS_MAX]
    cdef Out* out = &connection.out
    cdef Chunk* chunk = out.head
    cdef uint64_t left = out.written - out.sent
    cdef uint64_t size
    cdef int flags = MSG_NOSIGNAL | MSG_DONTWAIT
    cdef int count = 0
    cdef ssize_t sent
    if out.regions != NULL:
        left = out.regions.at - out.sent
        flags |= MSG_MORE
    while left > 0 and count < PARTS_MAX:
        size = chunk.end - chunk.begin
        if size > left:
            size = left
        parts[count].iov_base = chunk.data + chunk.begin
        parts[count].iov_len = size
        left -= size
        count += 1
        chunk = chunk.next
    sent = socket_send(connection, parts, count, flags)
    atomic_tally_i64(&connection.thread.counters.sends, 1)
    if sent <= 0:
        return is_sent_on(connection, sent)
    atomic_tally_i64(&connection.thread.counters.bytes_out, sent)
    out_sent(connection.thread, out, <uint64_t> sent)
    return True


cdef bint send_region(Connection* connection) noexcept nogil:
    cdef Out* out = &connection.out
    cdef Region* region = out.regions
    cdef off_t position = region.position
    cdef int64_t size = region.length
    cdef ssize_t sent
    if size > SENDFILE_BYTES_MAX:
        size = SENDFILE_BYTES_MAX
    sent = sendfile(connection.fd, region.fd, &position, <size_t> size)
    atomic_tally_i64(&connection.thread.counters.sends, 1)
    if sent == 0:
        # The length has been announced already: the stream cannot be kept in step.
        connection_close(connection, LOG_ERROR, "a file region is shorter than announced")
        return False
    if sent < 0:
        if errno != EAGAIN and errno != EINTR:
            connection_close(connection, LOG_DEBUG, "sendfile failed")
            return False
        return is_sent_on(connection, sent)
    atomic_tally_i64(&connection.thread.counters.sendfile_bytes, sent)
    region.position += sent
    region.length -= sent
    out.unsent -= sent
    if region.length == 0:
        out_region_done(out)
    return True


cdef void connection_flush(Connection* connection) noexcept nogil:
    cdef Out* out = &connection.out
    cdef int64_t before = out.unsent
    cdef int64_t unsent_max = connection.net.settings.unsent_bytes_max
    cdef bint going = not connection.flags & FLAG_UNWRITABLE
    cdef bint encrypts = connection.tls != NULL and not (<Tls*> connection.tls).kernel_sends
    marks_flush(connection)
    while going and (out.unsent > 0 or encrypts and not encrypted_is_sent(connection)):
        if encrypts:
            going = encrypted_send(connection)
        elif out.regions != NULL and out.regions.at == out.sent:
            going = send_region(connection)
        else:
            going = send_bytes(connection)
    if connection.blocked & BLOCK_CLOSED:
        return
    if not encrypts or (<Tls*> connection.tls).kept == NULL:
        marks_sent(connection)
    if out.unsent < before:
        connection.last_active_ms = connection.thread.now_ms
    if out.unsent + connection.out_of_turn > unsent_max:
        connection.blocked |= BLOCK_OUTPUT
    elif out.unsent + connection.out_of_turn <= unsent_max // 2:
        connection_unblock(connection, BLOCK_OUTPUT)


cdef void thread_flush(NetThread* thread) noexcept nogil:
    cdef Connection* connection
    while thread.flush != NULL:
        connection = thread.flush
        thread.flush = connection.flush_next
        connection.flags &= ~<uint32_t> FLAG_IN_FLUSH
        if connection.quota != NULL:
            quota_resume(connection)
        if not connection.blocked & BLOCK_CLOSED:
            connection_flush(connection)
        if connection.quota != NULL:
            quota_pause(connection)
        if connection.blocked & BLOCK_FAILED:
            connection_close(connection, LOG_WARNING, connection.failed)
