"""TLS under a connection (see encrypted.pxd)."""
from libc.stddef cimport size_t
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport malloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_exchange_i64, atomic_fence, atomic_load_ptr, atomic_tally_i64,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.connection cimport (
    BLOCK_STALL, Chunk, FLAG_IN_HANDSHAKES, FLAG_PEER_CLOSED, FLAG_READABLE,
    FLAG_UNWRITABLE, Job, Net, Out, Region, Request, SECURITY_SASL_SSL, STAGE_IDENTITY,
    STAGE_OPEN, STAGE_SASL, STAGE_TLS,
)
from kbroker.ext.connections cimport connection_close, connection_enter, connection_stall
from kbroker.ext.handshakes cimport (
    handshake_enters, handshake_leaves, handshake_next, handshake_overdue,
)
from kbroker.ext.log_ring cimport LOG_DEBUG, LOG_ERROR, LOG_INFO
from kbroker.ext.marks cimport marks_sent
from kbroker.ext.out_stream cimport out_region_done, out_sent
from kbroker.ext.posix cimport EAGAIN, EINTR, errno, pread, snprintf
from kbroker.ext.queue cimport job_new, queue_push, queue_reserve, queue_unreserve
from kbroker.ext.response cimport flush_later, ready_later
from kbroker.ext.sockets cimport MSG_DONTWAIT, MSG_PEEK, recv
from kbroker.ext.tls cimport (
    TLS_CLOSED, TLS_FAILED, TLS_WANTS_READ, TLS_WANTS_WRITE, TLS_WHY_BYTES, Tls, tls_handshake,
    tls_kernel_sends, tls_new, tls_peer_subject, tls_read, tls_write,
)
from kbroker.ext.tls_records cimport (
    BURST_BYTES, RECORDS_BYTES, RECORD_BYTES_MAX, records_attach, records_collect, records_send,
    records_send_kept,
)

cdef enum:
    HANDSHAKES_NS = 1000000     # of a turn
    KEPT_BYTES_MAX = 16 << 20   # of a thread; above it, bursts are of one record
    RECORD_HEADER_BYTES = 5
    GOES_ON = 1                 # Tls.ended: it does not
    RECORD_HANDSHAKE = 22
    REASON_BYTES = TLS_WHY_BYTES + 32


# ---- handshakes --------------------------------------------------------------------------------

cdef void handshake_later(Connection* connection) noexcept nogil:
    cdef NetThread* thread = connection.thread
    if connection.flags & FLAG_IN_HANDSHAKES:
        return
    connection.flags |= FLAG_IN_HANDSHAKES
    connection.handshake_next = NULL
    if thread.handshakes == NULL:
        thread.handshakes = connection
    else:
        thread.handshakes_tail.handshake_next = connection
    thread.handshakes_tail = connection


cdef void let_in(NetThread* thread) noexcept nogil:
    """Those that wait for a place, in the order in which they came."""
    cdef Connection* connection = handshake_next(thread)
    while connection != NULL:
        handshake_later(connection)
        connection = handshake_next(thread)
    connection = handshake_overdue(thread)
    if connection != NULL:
        fail(connection, "it takes long, and others wait")


cdef void thread_handshakes(NetThread* thread) noexcept nogil:
    """In the order in which they came; at least one."""
    cdef Connection* connection
    cdef int64_t until_ns
    let_in(thread)
    if thread.handshakes == NULL:
        return
    until_ns = monotonic_ns() + HANDSHAKES_NS
    while thread.handshakes != NULL:
        connection = thread.handshakes
        thread.handshakes = connection.handshake_next
        connection.flags &= ~<uint32_t> FLAG_IN_HANDSHAKES
        if not connection.blocked:
            if connection.stage == STAGE_TLS:
                shake(connection)
            elif connection.stage == STAGE_IDENTITY:
                ask_identity(connection)
        if monotonic_ns() >= until_ns:
            break


cdef void fail(Connection* connection, const char* why) noexcept nogil:
    cdef char reason[REASON_BYTES]
    atomic_tally_i64(&connection.thread.counters.handshakes_failed, 1)
    snprintf(reason, REASON_BYTES, "TLS handshake: %s", why)
    connection_close(connection, LOG_INFO, reason)


cdef bint is_first_record_there(Connection* connection) noexcept nogil:
    """Looks without taking anything; when it says no, the next bytes come with an event."""
    cdef uint8_t* p = connection.thread.buffer
    cdef uint64_t room = min(connection.thread.buffer_bytes, <uint64_t> RECORD_BYTES_MAX)
    cdef ssize_t got = recv(connection.fd, p, <size_t> room, MSG_PEEK | MSG_DONTWAIT)
    cdef ssize_t whole = RECORD_HEADER_BYTES
    if got < 0 and errno == EINTR:
        handshake_later(connection)
        return False
    if got < 0 and errno == EAGAIN:
        connection.flags &= ~<uint32_t> FLAG_READABLE
        return False
    if got <= 0:
        connection_close(connection, LOG_DEBUG, "closed by the client before TLS began")
        return False
    if p[0] != RECORD_HANDSHAKE:
        fail(connection, "the client speaks no TLS; has it security.protocol=SSL or SASL_SSL?")
        return False
    if got >= RECORD_HEADER_BYTES:
        whole += (p[3] << 8) + p[4]
    if got >= min(whole, <ssize_t> room):
        return True
    if connection.flags & FLAG_PEER_CLOSED:
        fail(connection, "the client went away in the middle of its first record")
    else:
        connection.flags &= ~<uint32_t> FLAG_READABLE
    return False


cdef bint begin(Connection* connection) noexcept nogil:
    cdef void** at = &connection.net.listeners[connection.listener].tls
    cdef void* context
    if not is_first_record_there(connection) or not handshake_enters(connection):
        return False
    context = atomic_load_ptr(at)
    if context != NULL:
        connection.tls = tls_new(context, connection.fd, True)
    if connection.tls == NULL:
        connection_close(connection, LOG_ERROR, "no memory for a TLS connection")
        return False
    return True


cdef void shake(Connection* connection) noexcept nogil:
    cdef Tls* tls
    cdef int code
    if connection.tls == NULL and not begin(connection):
        return
    tls = <Tls*> connection.tls
    code = tls_handshake(tls)
    if code == 1:
        finish(connection)
    elif code == TLS_WANTS_READ:
        connection.flags &= ~<uint32_t> FLAG_READABLE
    elif code == TLS_WANTS_WRITE:
        connection.flags |= FLAG_UNWRITABLE
    elif code == TLS_CLOSED:
        fail(connection, "the client went away")
    else:
        fail(connection, tls.why)


cdef void finish(Connection* connection) noexcept nogil:
    """What follows the handshake may stand in OpenSSL's buffer: FLAG_READABLE stays."""
    cdef Tls* tls = <Tls*> connection.tls
    atomic_tally_i64(&connection.thread.counters.handshakes, 1)
    handshake_leaves(connection)
    tls.kernel_sends = tls_kernel_sends(tls)
    if not tls.kernel_sends \
            and not records_attach(tls, connection.fd, &connection.thread.records_kept):
        connection_close(connection, LOG_ERROR, "no memory for a TLS connection")
        return
    tls.ended = GOES_ON
    connection.last_active_ms = connection.thread.now_ms
    if connection.net.listeners[connection.listener].security == SECURITY_SASL_SSL:
        connection_enter(connection, STAGE_SASL)
    elif tls_peer_subject(tls, NULL, 0) > 0:
        connection_enter(connection, STAGE_IDENTITY)
        ask_identity(connection)
        return
    else:
        connection_enter(connection, STAGE_OPEN)
    ready_later(connection)


cdef void fill_identity(Connection* connection, Request* request, ssize_t length) noexcept nogil:
    cdef NetThread* thread = connection.thread
    memset(request, 0, sizeof(Request))
    request.net = connection.net
    request.thread = thread
    request.connection = connection
    request.frame = thread.buffer
    request.p = thread.buffer
    request.end = thread.buffer + length
    request.api_key = IDENTITY_KEY
    request.received_ns = thread.now_ns
    request.listener = connection.listener


cdef void ask_identity(Connection* connection) noexcept nogil:
    """The subject as it stands in the certificate (DER), for the control thread to answer with
    Request.identify and nothing else."""
    cdef Net* net = connection.net
    cdef NetThread* thread = connection.thread
    cdef Request request
    cdef Job* job
    cdef ssize_t length = tls_peer_subject(<Tls*> connection.tls, thread.buffer,
                                           thread.buffer_bytes)
    if length <= 0 or <uint64_t> length > thread.buffer_bytes:
        fail(connection, "the subject of the client's certificate cannot be read")
        return
    if not queue_reserve(&net.control):
        atomic_exchange_i64(&net.stalled, 1)        # see net_unstall_all
        atomic_fence()
        if not queue_reserve(&net.control):
            connection_stall(connection, BLOCK_STALL)
            return
    fill_identity(connection, &request, length)
    job = job_new(&request)
    if job == NULL:
        queue_unreserve(&net.control)
        connection_close(connection, LOG_ERROR, request.reason)
        return
    queue_push(&net.control, job)


# ---- reading -----------------------------------------------------------------------------------

cdef ssize_t read_into(Tls* tls, uint8_t* p, size_t n) noexcept nogil:
    """Until it is full or there is no more now (`ended`)."""
    cdef size_t filled = 0
    cdef ssize_t got
    while filled < n:
        got = tls_read(tls, p + filled, n - filled)
        if got <= 0:
            tls.ended = <int> got
            break
        filled += <size_t> got
    return <ssize_t> filled


cdef void read_ended(Connection* connection) noexcept nogil:
    """Nothing came: why."""
    cdef Tls* tls = <Tls*> connection.tls
    cdef char reason[REASON_BYTES]
    if tls.ended == TLS_WANTS_READ:
        connection.flags &= ~<uint32_t> FLAG_READABLE
    elif tls.ended == TLS_WANTS_WRITE:
        connection.flags &= ~<uint32_t> FLAG_READABLE
        connection.flags |= FLAG_UNWRITABLE         # EPOLLOUT has it read again
    elif tls.ended == TLS_CLOSED:
        while not encrypted_is_sent(connection) and encrypted_send(connection):
            pass
        connection_close(connection, LOG_DEBUG, "closed by the client")
    else:
        snprintf(reason, REASON_BYTES, "TLS: %s", tls.why)
        connection_close(connection, LOG_INFO, reason)


cdef ssize_t encrypted_read(Connection* connection, iovec_t* parts, int count) noexcept nogil:
    cdef Tls* tls = <Tls*> connection.tls
    cdef ssize_t got = 0
    cdef ssize_t one
    cdef int at
    if tls.ended != TLS_CLOSED and tls.ended != TLS_FAILED:
        tls.ended = GOES_ON
    for at in range(count):
        if tls.ended != GOES_ON:
            break
        one = read_into(tls, <uint8_t*> parts[at].iov_base, parts[at].iov_len)
        got += one
    if tls.write_reads:
        tls.write_reads = False
        connection.flags &= ~<uint32_t> FLAG_UNWRITABLE
        flush_later(connection)
    if got == 0 or tls.ended == TLS_WANTS_READ or tls.ended == TLS_WANTS_WRITE:
        read_ended(connection)
    return got


# ---- sending -----------------------------------------------------------------------------------

cdef uint8_t* next_bytes(Connection* connection, int64_t size) noexcept nogil:
    """The next `size` bytes of the output in one piece; NULL when the connection had to close."""
    cdef NetThread* thread = connection.thread
    cdef Out* out = &connection.out
    cdef Chunk* chunk = out.head
    cdef Region* region = out.regions
    cdef uint64_t until = region.at if region != NULL else out.written
    if chunk != NULL and until - out.sent >= <uint64_t> size \
            and chunk.end - chunk.begin >= <uint64_t> size:
        return chunk.data + chunk.begin
    return thread.burst_clear if gather(connection, thread.burst_clear, size) else NULL


cdef bint gather(Connection* connection, uint8_t* into, int64_t size) noexcept nogil:
    cdef Out* out = &connection.out
    cdef Chunk* chunk = out.head
    cdef uint32_t begin = chunk.begin if chunk != NULL else 0
    cdef Region* region = out.regions
    cdef uint64_t at = out.sent
    cdef int64_t part
    while size > 0:
        if region != NULL and region.at == at:
            part = min(size, region.length)
            if not read_region(connection, region, into, part):
                return False
            region = region.next
        else:
            while begin == chunk.end:
                chunk = chunk.next
                begin = chunk.begin
            part = <int64_t> ((region.at if region != NULL else out.written) - at)
            part = min(part, size, <int64_t> (chunk.end - begin))
            memcpy(into, chunk.data + begin, <size_t> part)
            begin += <uint32_t> part
            at += <uint64_t> part
        into += part
        size -= part
    return True


cdef bint read_region(Connection* connection, Region* region, uint8_t* into,
                      int64_t size) noexcept nogil:
    cdef int64_t filled = 0
    cdef ssize_t got
    while filled < size:
        got = pread(region.fd, into + filled, <size_t> (size - filled), region.position + filled)
        if got < 0 and errno == EINTR:
            continue
        if got <= 0:
            # The length has been announced already: the stream cannot be kept in step.
            connection_close(connection, LOG_ERROR, "a file region is shorter than announced")
            return False
        filled += got
    return True


cdef void forget_sent(Connection* connection, int64_t size) noexcept nogil:
    cdef Out* out = &connection.out
    cdef Region* region
    cdef int64_t part
    while size > 0:
        region = out.regions
        if region != NULL and region.at == out.sent:
            part = min(size, region.length)
            region.position += part
            region.length -= part
            out.unsent -= part
            if region.length == 0:
                out_region_done(out)
        else:
            part = min(size, <int64_t> (
                (region.at if region != NULL else out.written) - out.sent))
            out_sent(connection.thread, out, <uint64_t> part)
        size -= part


cdef bint has_buffers(NetThread* thread) noexcept nogil:
    """Of the thread's bursts; they stay."""
    if thread.burst_clear == NULL:
        thread.burst_clear = <uint8_t*> malloc(BURST_BYTES)
    if thread.burst_records == NULL:
        thread.burst_records = <uint8_t*> malloc(RECORDS_BYTES)
    return thread.burst_clear != NULL and thread.burst_records != NULL


cdef bint is_taken(Connection* connection, int code) noexcept nogil:
    """What came of a send: whether the socket took all."""
    if code == 1:
        return True
    if code == TLS_WANTS_WRITE or code == TLS_WANTS_READ:
        (<Tls*> connection.tls).write_reads = code == TLS_WANTS_READ
        connection.flags |= FLAG_UNWRITABLE
    else:
        connection_close(connection, LOG_DEBUG, "reset while sending")
    return False


cdef ssize_t encrypt(Connection* connection, const uint8_t* p, int64_t size) noexcept nogil:
    """Record by record, as OpenSSL takes them; what came of the last."""
    cdef Tls* tls = <Tls*> connection.tls
    cdef int64_t taken = 0
    cdef ssize_t got = 1
    while taken < size and got > 0:
        got = tls_write(tls, p + taken, <size_t> (size - taken))
        if got > 0:
            taken += got
    atomic_tally_i64(&connection.thread.counters.bytes_out, taken)
    forget_sent(connection, taken)
    return got


cdef bint send_burst(Connection* connection) noexcept nogil:
    cdef NetThread* thread = connection.thread
    cdef Tls* tls = <Tls*> connection.tls
    cdef int64_t most = BURST_BYTES if thread.records_kept < KEPT_BYTES_MAX else RECORD_BYTES_MAX
    cdef int64_t size = min(connection.out.unsent, most)
    cdef uint8_t* p
    cdef ssize_t got
    cdef int code
    if not has_buffers(thread):
        connection_close(connection, LOG_ERROR, "no memory for TLS records")
        return False
    p = next_bytes(connection, size)
    if p == NULL:
        return False
    records_collect(tls, thread.burst_records)
    got = encrypt(connection, p, size)
    atomic_tally_i64(&thread.counters.sends, 1)
    code = records_send(tls)
    if code == 1 and got <= 0 and got != TLS_WANTS_WRITE:       # for that there is room again
        code = <int> got
    return is_taken(connection, code)


cdef bint encrypted_is_sent(Connection* connection) noexcept nogil:
    cdef Tls* tls = <Tls*> connection.tls
    return connection.out.unsent == 0 and (tls == NULL or tls.kept == NULL)


cdef bint encrypted_send(Connection* connection) noexcept nogil:
    cdef Tls* tls = <Tls*> connection.tls
    if tls.kept != NULL:
        atomic_tally_i64(&connection.thread.counters.sends, 1)
        connection.last_active_ms = connection.thread.now_ms
        if not is_taken(connection, records_send_kept(tls)):
            return False
        marks_sent(connection)
        if connection.out.unsent == 0:
            return True
    return send_burst(connection)
