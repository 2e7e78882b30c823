"""Reading (see input.pxd).

One read goes into the thread's buffer, and whole frames are handled where they lie. What is left is
copied into a buffer of the connection: when it is the beginning of a frame, a buffer for all of the
frame, whose memory is reserved first; the next read puts the rest there and what follows into the
thread's buffer. A connection that may not go on (`blocked`) keeps what was read, as it is.

    in_buffer NULL              nothing kept
    blocked                     in_begin..in_end: frames, from the beginning of one
    not blocked, < 4 bytes      the beginning of a length
    not blocked                 the beginning of a frame, with room for the rest
"""
from libc.stddef cimport size_t
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

from kbroker.ext.atomics cimport atomic_add_i64, atomic_exchange_i64, atomic_fence, atomic_tally_i64
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport (
    BLOCK_CLOSED, BLOCK_MEMORY, FLAG_PEER_CLOSED, FLAG_READABLE, NetThread, STAGE_IDENTITY,
    STAGE_OPEN, STAGE_TLS,
)
from kbroker.ext.connections cimport connection_close, connection_fail, connection_stall, input_free
from kbroker.ext.encrypted cimport encrypted_read, handshake_later
from kbroker.ext.endian cimport load_be32
from kbroker.ext.frame cimport FRAME_STALLED, frame_handle
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_ERROR, LOG_WARNING
from kbroker.ext.memory cimport (
    buffer_alloc, pool_force, pool_give_strange, pool_has_room, pool_release, pool_reserve,
    pool_take_strange,
)
from kbroker.ext.output cimport connection_flush
from kbroker.ext.posix cimport EAGAIN, EINTR, errno, snprintf, ssize_t
from kbroker.ext.quotas cimport quota_pause, quota_resume
from kbroker.ext.response cimport ready_later
from kbroker.ext.sockets cimport iovec_t, readv

cdef enum:
    LENGTH_BYTES = 4
    WANTS_ROOM = -1                 # Connection.wanted: any room, before reading at all

cdef const char* STRANGERS = b"clients that have not logged in hold too much memory; try again"


# ---- frames ------------------------------------------------------------------------------------

cdef bint is_length_good(Connection* connection, int32_t length) noexcept nogil:
    cdef char reason[128]
    cdef int64_t most = connection.net.settings.request_bytes_max
    cdef const char* name = "socket.request.max.bytes"
    if connection.stage != STAGE_OPEN:
        most = connection.net.settings.sasl_bytes_max
        name = "sasl.server.max.receive.size"
    if 0 <= length <= most:
        return True
    snprintf(reason, 128, "a frame of %d bytes; %s is %ld", <int> length, name, <long> most)
    connection_fail(connection, LOG_WARNING, reason)
    return False


cdef uint64_t handle_frames(Connection* connection, uint8_t* p, uint64_t n) noexcept nogil:
    """Handle whole frames until one is incomplete or the connection blocks; bytes used."""
    cdef uint64_t used = 0
    cdef int32_t length
    cdef int64_t unsent_max = connection.net.settings.unsent_bytes_max
    while not connection.blocked and n - used >= LENGTH_BYTES:
        length = <int32_t> load_be32(p + used)
        if not is_length_good(connection, length):
            break
        if n - used - LENGTH_BYTES < <uint64_t> length:
            break
        if frame_handle(connection, p + used + LENGTH_BYTES, <uint32_t> length) == FRAME_STALLED:
            break
        used += LENGTH_BYTES + <uint64_t> length
        if connection.out.unsent > unsent_max:
            connection_flush(connection)
    return used


# ---- keeping -----------------------------------------------------------------------------------

cdef bint reserve_or_wait(Connection* connection, int64_t size) noexcept nogil:
    """Reserve the memory of a frame; without any the connection waits, and what it already holds
    no longer counts against the others."""
    if pool_reserve(&connection.net.pool, size):
        return True
    atomic_exchange_i64(&connection.net.stalled, 1)     # see net_unstall_all
    atomic_fence()
    if pool_reserve(&connection.net.pool, size):
        return True
    if connection.wanted == 0:
        atomic_add_i64(&connection.net.pool.waiting_bytes, connection.reserved)
    connection.wanted = size
    connection_stall(connection, BLOCK_MEMORY)
    return False


cdef bint replace_buffer(Connection* connection, const uint8_t* p, uint64_t n,
                         uint64_t size, int64_t reserved) noexcept nogil:
    """A buffer of `size` bytes, reserved already, that begins with p..p+n; the old one goes."""
    cdef uint64_t capacity = 0
    cdef int64_t strange = 0
    cdef uint8_t* buffer = NULL
    if connection.stage != STAGE_OPEN:
        strange = pool_take_strange(&connection.net.pool, <int64_t> size)
    if strange >= 0:
        buffer = buffer_alloc(&connection.net.pool, size, &capacity)
    if buffer == NULL:
        pool_give_strange(&connection.net.pool, strange)
        pool_release(&connection.net.pool, reserved)
        if strange < 0:
            connection_close(connection, LOG_WARNING, STRANGERS)
        else:
            connection_close(connection, LOG_ERROR, "out of memory for a request")
        return False
    memcpy(buffer, p, n)
    input_free(connection)
    connection.in_buffer = buffer
    connection.in_capacity = capacity
    connection.in_begin = 0
    connection.in_end = n
    connection.reserved = reserved
    connection.strange = strange
    return True


cdef void keep(Connection* connection, const uint8_t* p, uint64_t n) noexcept nogil:
    """Keep bytes of the thread's buffer; there are none kept."""
    cdef int64_t total
    if not connection.blocked and n >= LENGTH_BYTES:
        total = LENGTH_BYTES + <int64_t> load_be32(p)
        if pool_reserve(&connection.net.pool, total):
            replace_buffer(connection, p, n, <uint64_t> total, total)
            return
    pool_force(&connection.net.pool, <int64_t> n)
    if replace_buffer(connection, p, n, n, <int64_t> n):
        make_room(connection)


cdef void make_room(Connection* connection) noexcept nogil:
    """See that the rest of the frame that is kept will fit, unless the connection is blocked."""
    cdef uint8_t* p = connection.in_buffer + connection.in_begin
    cdef uint64_t n = connection.in_end - connection.in_begin
    cdef int64_t total
    if connection.blocked or n < LENGTH_BYTES:
        return
    if not is_length_good(connection, <int32_t> load_be32(p)):
        return
    total = LENGTH_BYTES + <int64_t> load_be32(p)
    if connection.in_begin + <uint64_t> total <= connection.in_capacity \
            and connection.reserved >= total:
        return
    if reserve_or_wait(connection, total):
        replace_buffer(connection, p, n, <uint64_t> total, total)


cdef void append(Connection* connection, const uint8_t* p, uint64_t n) noexcept nogil:
    """Bytes of the thread's buffer behind what a blocked connection keeps."""
    cdef uint64_t held = connection.in_end - connection.in_begin
    cdef uint8_t* old = connection.in_buffer
    cdef uint64_t begin = connection.in_begin
    cdef int64_t reserved = <int64_t> (held + n)
    if n == 0:
        return
    pool_force(&connection.net.pool, reserved)
    if replace_buffer(connection, old + begin, held, held + n, reserved):
        memcpy(connection.in_buffer + held, p, n)
        connection.in_end = held + n


cdef void go_on_with_kept(Connection* connection) noexcept nogil:
    cdef uint64_t used = handle_frames(connection, connection.in_buffer + connection.in_begin,
                                       connection.in_end - connection.in_begin)
    if connection.blocked & BLOCK_CLOSED:
        return
    connection.in_begin += used
    if connection.in_begin == connection.in_end:
        input_free(connection)
    else:
        make_room(connection)


# ---- reading -----------------------------------------------------------------------------------

cdef inline void note_read(Connection* connection, ssize_t got) noexcept nogil:
    cdef NetThread* thread = connection.thread
    thread.clock_ns = monotonic_ns()
    thread.clock_is_old = False
    thread.burst = 0
    atomic_tally_i64(&thread.counters.bytes_in, got)
    connection.last_active_ms = thread.now_ms


cdef ssize_t socket_read(Connection* connection, iovec_t* parts, int count) noexcept nogil:
    """Bytes in the clear; 0: nothing to handle (closed, or no bytes now)."""
    cdef size_t asked = parts[0].iov_len + (parts[1].iov_len if count > 1 else 0)
    cdef ssize_t got
    atomic_tally_i64(&connection.thread.counters.reads, 1)
    if connection.tls != NULL:
        got = encrypted_read(connection, parts, count)
        if got > 0:
            note_read(connection, got)
        return got
    got = readv(connection.fd, parts, count)
    if got > 0:
        note_read(connection, got)
        # A short read has emptied the socket; the next bytes come with an event of their own.
        if <size_t> got < asked and not connection.flags & FLAG_PEER_CLOSED:
            connection.flags &= ~<uint32_t> FLAG_READABLE
        return got
    if got < 0 and errno == EINTR:
        return 0
    if got < 0 and errno == EAGAIN:
        connection.flags &= ~<uint32_t> FLAG_READABLE
        return 0
    if connection.out.unsent > 0:
        connection_flush(connection)
    connection_close(connection, LOG_DEBUG, "closed by the client" if got == 0 else "reset")
    return 0


cdef void take(Connection* connection, uint8_t* p, uint64_t n) noexcept nogil:
    """Bytes in the thread's buffer, from the beginning of a frame; nothing is kept."""
    cdef uint64_t used = handle_frames(connection, p, n)
    if used < n and not connection.blocked & BLOCK_CLOSED:
        keep(connection, p + used, n - used)


cdef void read_frames(Connection* connection, uint64_t before) noexcept nogil:
    """Read behind `before` bytes that stand at the beginning of the thread's buffer already."""
    cdef NetThread* thread = connection.thread
    cdef iovec_t part
    cdef ssize_t got
    part.iov_base = thread.buffer + before
    part.iov_len = thread.buffer_bytes - before
    got = socket_read(connection, &part, 1)
    if connection.blocked & BLOCK_CLOSED:
        return
    if <uint64_t> got + before > 0:
        take(connection, thread.buffer, <uint64_t> got + before)


cdef void read_rest(Connection* connection) noexcept nogil:
    """Read the rest of the frame that is kept into its buffer, what follows into the thread's."""
    cdef NetThread* thread = connection.thread
    cdef iovec_t parts[2]
    cdef uint8_t* p = connection.in_buffer + connection.in_begin
    cdef uint64_t total = LENGTH_BYTES + <uint64_t> load_be32(p)
    cdef uint64_t missing = total - (connection.in_end - connection.in_begin)
    cdef uint8_t* buffer = thread.buffer    # while a handler stands in the disk it is another
    cdef uint64_t more
    cdef ssize_t got
    parts[0].iov_base = connection.in_buffer + connection.in_end
    parts[0].iov_len = missing
    parts[1].iov_base = buffer
    parts[1].iov_len = thread.buffer_bytes
    got = socket_read(connection, parts, 2)
    if got <= 0:
        return
    if <uint64_t> got < missing:
        connection.in_end += <uint64_t> got
        return
    more = <uint64_t> got - missing
    connection.in_end += missing
    go_on_with_kept(connection)
    if more == 0 or connection.blocked & BLOCK_CLOSED:
        return
    if connection.in_buffer != NULL:
        append(connection, buffer, more)
    else:
        take(connection, buffer, more)


cdef void receive(Connection* connection) noexcept nogil:
    cdef uint64_t kept = connection.in_end - connection.in_begin
    if connection.in_buffer == NULL:
        if not pool_has_room(&connection.net.pool) and not may_read(connection):
            return
        read_frames(connection, 0)
    elif kept < LENGTH_BYTES:
        memcpy(connection.thread.buffer, connection.in_buffer + connection.in_begin, kept)
        input_free(connection)
        read_frames(connection, kept)
    else:
        read_rest(connection)
    if connection.flags & FLAG_READABLE and not connection.blocked:
        ready_later(connection)


cdef bint may_read(Connection* connection) noexcept nogil:
    """Request memory is used up: wait for some before reading what would have to be kept."""
    atomic_exchange_i64(&connection.net.stalled, 1)     # see net_unstall_all
    atomic_fence()
    if pool_has_room(&connection.net.pool):
        return True
    connection_stall(connection, BLOCK_MEMORY)
    return False


cdef bint is_granted(Connection* connection) noexcept nogil:
    """Try again for the memory that the connection waits for."""
    cdef int64_t size = connection.wanted
    if size == 0:
        return True
    atomic_add_i64(&connection.net.pool.waiting_bytes, -connection.reserved)
    connection.wanted = 0
    if not reserve_or_wait(connection, size):
        return False
    return replace_buffer(connection, connection.in_buffer + connection.in_begin,
                          connection.in_end - connection.in_begin, <uint64_t> size, size)


cdef void connection_progress(Connection* connection) noexcept nogil:
    if connection.blocked or not is_granted(connection):
        return
    if connection.stage == STAGE_TLS or connection.stage == STAGE_IDENTITY:
        handshake_later(connection)
        return
    if connection.quota != NULL:
        quota_resume(connection)
    if connection.in_buffer != NULL:
        go_on_with_kept(connection)
    if not connection.blocked and connection.flags & FLAG_READABLE:
        receive(connection)
    if connection.quota != NULL:
        quota_pause(connection)
