"""Links: sending and receiving, answers told to their calls (see client_link.pxd)."""
from libc.stdint cimport INT32_MAX, INT64_MAX
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_load_i32, atomic_store_relaxed_i32, atomic_store_relaxed_i64,
    atomic_tally_i32, atomic_tally_i64,
)
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.debug cimport (
    OBJECT_ANSWER, OBJECT_LINK, debug_assert, object_born, object_died,
)
from kbroker.ext.endian cimport load_be32, store_be32
from kbroker.ext.memory cimport Pool, buffer_alloc, buffer_free, pool_init, pool_trim
from kbroker.ext.posix cimport EAGAIN, EINTR, close, errno, ssize_t
from kbroker.ext.sockets cimport (
    MSG_NOSIGNAL, SO_RCVLOWAT, SOL_SOCKET, msghdr_t, read, sendmsg, setsockopt,
)
from kbroker.ext.tls cimport TLS_WANTS_READ, TLS_WANTS_WRITE, tls_free, tls_read, tls_write
from kbroker.ext.wire cimport (
    Cursor, cursor_init, cursor_left, put_i16, put_i32, put_no_tags, put_string, skip_tags,
)

cdef enum:
    LENGTH_BYTES = 4
    CORRELATION_AT = 8              # in a request
    API_VERSIONS_KEY = 18
    PARTS_MAX = 64                  # pieces of one sendmsg
    READ_BYTES = 512 << 10          # at once: what comes stays in the cache until it is summed
    TURN_READ_BYTES = 8 << 20       # of one link, before the others have their turn
    CACHE_BYTES_MAX = 32 << 20      # of answers' memory that is kept warm

# Memory of answers, of all loops of the process: what is kept outlives its loop.
cdef Pool answers
pool_init(&answers, 0, CACHE_BYTES_MAX)
cdef int32_t loops = 0              # atomic


cdef void loops_note(int32_t change) noexcept nogil:
    if atomic_add_i32(&loops, change) == 0:
        pool_trim(&answers)


cdef Link* link_new(Loop* loop, int32_t id, int32_t fd, Tls* tls) noexcept nogil:
    cdef Link* link = <Link*> calloc(1, sizeof(Link))
    cdef int key
    if link == NULL:
        return NULL
    link.id = id
    link.fd = fd
    link.tls = tls
    link.loop = loop
    for key in range(LINK_API_KEYS):
        link.version_high[key] = -1
    object_born(OBJECT_LINK)
    return link


cdef void link_free(Link* link) noexcept nogil:
    debug_assert(link.in_flight == 0, "a link freed with calls in flight")
    buffer_free(&answers, link.frame, link.frame_capacity)
    tls_free(link.tls)
    close(link.fd)
    free(link)
    object_died(OBJECT_LINK)


# ---- calls -------------------------------------------------------------------------------------

cdef void link_put_header(Loop* loop, Writer* w, Call* call) noexcept nogil:
    put_i32(w, 0)
    put_i16(w, call.api_key)
    put_i16(w, call.api_version)
    put_i32(w, 0)
    put_string(w, loop.client_id, loop.client_id_bytes)
    if call.flexible:
        put_no_tags(w)


cdef void make_dirty(Link* link) noexcept nogil:
    if not link.dirty and not link.down:
        link.dirty = True
        link.next = link.loop.dirty
        link.loop.dirty = link


cdef int link_submit(Loop* loop, int32_t id, Call* call) noexcept nogil:
    cdef Link* link = link_find(loop, id)
    cdef uint8_t* head
    cdef int32_t index
    if link == NULL:
        return LINK_BROKEN
    head = <uint8_t*> call.pieces[0].iov_base
    debug_assert(call.pieces[0].iov_len >= CORRELATION_AT + 4, "a call without a header")
    call.bytes = 0
    for index in range(call.piece_count):
        call.bytes += call.pieces[index].iov_len
    debug_assert(call.bytes <= INT32_MAX, "a request longer than its length can tell")
    link.correlation_id = (link.correlation_id + 1) & INT32_MAX
    store_be32(head, <uint32_t> (call.bytes - LENGTH_BYTES))
    store_be32(head + CORRELATION_AT, <uint32_t> link.correlation_id)
    call.correlation_id = link.correlation_id
    call.link = id
    call.sent = 0
    call.next = NULL
    if link.unsent == NULL:
        link.unsent = call
    else:
        link.unsent_tail.next = call
    link.unsent_tail = call
    atomic_tally_i32(&link.in_flight, 1)
    atomic_tally_i64(&link.requests, 1)
    if call.deadline_ns and call.deadline_ns < loop.call_deadline_ns:
        loop.call_deadline_ns = call.deadline_ns
    make_dirty(link)
    return LINK_OK


cdef int32_t link_in_flight(Loop* loop, int32_t id) noexcept nogil:
    cdef Link* link = link_find(loop, id)
    return link.in_flight if link != NULL else 0


cdef int16_t link_version(Loop* loop, int32_t id, int16_t api_key, int16_t low,
                          int16_t high) noexcept nogil:
    cdef Link* link = link_find(loop, id)
    cdef int16_t version
    if link == NULL or api_key < 0 or api_key >= LINK_API_KEYS:
        return -1
    version = high if high < link.version_high[api_key] else link.version_high[api_key]
    return version if version >= low and version >= link.version_low[api_key] else -1


cdef int64_t earliest(const Call* call, int64_t least) noexcept nogil:
    while call != NULL:
        if call.deadline_ns and call.deadline_ns < least:
            least = call.deadline_ns
        call = call.next
    return least


cdef int64_t link_deadline_ns(Link* link) noexcept nogil:
    return earliest(link.unsent, earliest(link.awaited, INT64_MAX))


cdef void fail_calls(Call* call, int code) noexcept nogil:
    cdef Call* following
    while call != NULL:
        following = call.next
        call.done(call, code, NULL, 0)
        call = following


cdef void link_fail(Link* link, int code) noexcept nogil:
    cdef Call* awaited = link.awaited
    cdef Call* unsent = link.unsent
    cdef Link** at
    cdef Driver* driver
    cdef int32_t index
    if link.down:
        return
    if link.dirty:
        at = &link.loop.dirty
        while at[0] != link:
            at = &at[0].next
        at[0] = link.next
        link.dirty = False
    atomic_store_relaxed_i32(&link.down, 1)
    link.code = code
    link.awaited = NULL
    link.unsent = NULL
    atomic_store_relaxed_i32(&link.in_flight, 0)
    link.next = link.loop.downs
    link.loop.downs = link
    link.loop.again = True
    fail_calls(awaited, code)
    fail_calls(unsent, code)
    for index in range(link.loop.driver_count):
        driver = link.loop.drivers[index]
        if driver.link_down != NULL:
            driver.link_down(driver.self, link.id, code)


# ---- sending -----------------------------------------------------------------------------------

cdef int gather(Link* link, iovec_t* parts) noexcept nogil:
    """What is to be sent, in at most PARTS_MAX parts."""
    cdef Call* call = link.unsent
    cdef uint64_t skip
    cdef int32_t index
    cdef int count = 0
    while call != NULL:
        skip = call.sent
        for index in range(call.piece_count):
            if skip >= call.pieces[index].iov_len:
                skip -= call.pieces[index].iov_len
                continue
            if count == PARTS_MAX:
                return count
            parts[count].iov_base = <uint8_t*> call.pieces[index].iov_base + skip
            parts[count].iov_len = call.pieces[index].iov_len - skip
            skip = 0
            count += 1
        call = call.next
    return count


cdef void written(Link* link, Call* call) noexcept nogil:
    """The oldest unsent call is out."""
    link.unsent = call.next
    call.next = NULL
    call.sent_ns = monotonic_ns()
    if call.answered:
        if link.awaited == NULL:
            link.awaited = call
        else:
            link.awaited_tail.next = call
        link.awaited_tail = call
        return
    atomic_tally_i32(&link.in_flight, -1)
    link.loop.again = True
    call.done(call, LINK_OK, NULL, 0)


cdef void note_sent(Link* link, uint64_t sent) noexcept nogil:
    cdef Call* call
    cdef uint64_t left
    atomic_tally_i64(&link.bytes_out, <int64_t> sent)
    while sent > 0:
        call = link.unsent
        left = call.bytes - call.sent
        if sent < left:
            call.sent += sent
            return
        sent -= left
        call.sent = call.bytes
        written(link, call)


cdef ssize_t encrypt_parts(Link* link, const iovec_t* parts, int count) noexcept nogil:
    """As send_parts. Small parts go out together: each call makes a record of TLS. A call after
    one that had to wait offers the same bytes, maybe with more behind them, as OpenSSL wants."""
    cdef const uint8_t* p = <const uint8_t*> parts[0].iov_base
    cdef uint64_t n = parts[0].iov_len
    cdef uint64_t room
    cdef ssize_t got
    cdef int index
    if n < LOOP_BUFFER_BYTES and count > 1:
        p = link.loop.buffer
        n = 0
        for index in range(count):
            room = LOOP_BUFFER_BYTES - n
            if parts[index].iov_len < room:
                room = parts[index].iov_len
            memcpy(link.loop.buffer + n, parts[index].iov_base, room)
            n += room
    got = tls_write(link.tls, p, n)
    if got > 0:
        return got
    if got == TLS_WANTS_READ or got == TLS_WANTS_WRITE:
        link.writable = False
        return 0
    return -1


cdef ssize_t send_parts(Link* link, iovec_t* parts, int count) noexcept nogil:
    """Bytes; 0: not now; -1: it is broken."""
    cdef msghdr_t message
    cdef ssize_t got
    if link.tls != NULL:
        return encrypt_parts(link, parts, count)
    memset(&message, 0, sizeof(message))
    message.msg_iov = parts
    message.msg_iovlen = count
    got = sendmsg(link.fd, &message, MSG_NOSIGNAL)
    if got >= 0:
        return got
    if errno == EINTR:
        return 0
    if errno == EAGAIN:
        link.writable = False
        return 0
    return -1


cdef void link_flush(Link* link) noexcept nogil:
    cdef iovec_t parts[PARTS_MAX]
    cdef ssize_t sent
    while link.unsent != NULL and link.writable and link.active and not link.down:
        sent = send_parts(link, parts, gather(link, parts))
        if sent < 0:
            link_fail(link, LINK_BROKEN)
            return
        note_sent(link, <uint64_t> sent)


# ---- receiving ---------------------------------------------------------------------------------

cdef bint handle(Link* link, const uint8_t* frame, uint64_t length,
                 uint64_t capacity) noexcept nogil:
    """One whole answer. True when its memory was taken over."""
    cdef Loop* loop = link.loop
    cdef Call* call = link.awaited
    cdef Cursor c
    cdef int64_t latency_ns
    cursor_init(&c, frame, length)
    c.p += LENGTH_BYTES
    if call.flexible and call.api_key != API_VERSIONS_KEY:
        skip_tags(&c)
    if load_be32(frame) != <uint32_t> call.correlation_id or c.bad:
        link_fail(link, LINK_CORRUPT)
        return False
    link.awaited = call.next
    atomic_tally_i32(&link.in_flight, -1)
    atomic_tally_i64(&link.answers, 1)
    latency_ns = loop.now_ns - call.sent_ns
    if latency_ns > 0:
        atomic_tally_i64(&link.latency_ns_sum, latency_ns)
        if latency_ns > link.latency_ns_max:
            atomic_store_relaxed_i64(&link.latency_ns_max, latency_ns)
    loop.handled = <uint8_t*> frame
    loop.handled_capacity = capacity
    loop.handled_p = c.p
    loop.handled_n = cursor_left(&c)
    loop.handled_kept = False
    call.done(call, LINK_OK, c.p, cursor_left(&c))
    loop.handled = NULL
    return loop.handled_kept


cdef bint link_keep(Loop* loop, Kept* out) noexcept nogil:
    cdef uint8_t* frame = loop.handled
    debug_assert(frame != NULL and not loop.handled_kept, "link_keep outside of an answer")
    out.n = loop.handled_n
    out.p = loop.handled_p
    out.buffer = frame
    out.capacity = loop.handled_capacity
    if loop.handled_capacity == 0:
        out.buffer = buffer_alloc(&answers, out.n if out.n else 1, &out.capacity)
        if out.buffer == NULL:
            return False
        memcpy(out.buffer, loop.handled_p, out.n)
        out.p = out.buffer
    loop.handled_kept = True
    object_born(OBJECT_ANSWER)
    return True


cdef void kept_free(Kept* kept) noexcept nogil:
    if kept.buffer == NULL:
        return
    buffer_free(&answers, kept.buffer, kept.capacity)
    kept.buffer = NULL
    object_died(OBJECT_ANSWER)
    if atomic_load_i32(&loops) == 0:
        pool_trim(&answers)


cdef bint is_length_good(Link* link, uint32_t length) noexcept nogil:
    """An answer that nobody waits for is none, whatever its length."""
    if LENGTH_BYTES <= length <= LINK_FRAME_BYTES_MAX and link.awaited != NULL:
        return True
    link_fail(link, LINK_CORRUPT)
    return False


cdef void wake_for(Link* link, uint64_t bytes) noexcept nogil:
    """Not before so many have come, or as many as are read at once: a long answer wakes its reader
    a third as often. With TLS nobody knows how many bytes of the socket make these."""
    cdef int32_t least = <int32_t> min(bytes, <uint64_t> READ_BYTES)
    if link.tls == NULL and link.frame_bytes >= READ_BYTES:
        setsockopt(link.fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least))


cdef void begin_frame(Link* link, const uint8_t* p, uint64_t n, uint32_t length) noexcept nogil:
    """The first n bytes of an answer that is not whole yet; its length was checked."""
    link.frame = buffer_alloc(&answers, length, &link.frame_capacity)
    if link.frame == NULL:
        link_fail(link, LINK_BROKEN)
        return
    memcpy(link.frame, p, n)
    link.frame_have = n
    link.frame_bytes = length
    link.length_have = 0
    wake_for(link, length - n)


cdef void end_frame(Link* link) noexcept nogil:
    cdef uint8_t* frame = link.frame
    cdef uint64_t capacity = link.frame_capacity
    link.frame = NULL
    wake_for(link, 1)
    if not handle(link, frame, link.frame_bytes, capacity):
        buffer_free(&answers, frame, capacity)


cdef void take(Link* link, const uint8_t* p, uint64_t n) noexcept nogil:
    """Bytes in the loop's buffer, from the beginning of an answer."""
    cdef uint32_t length
    while n >= LENGTH_BYTES:
        length = load_be32(p)
        if not is_length_good(link, length):
            return
        p += LENGTH_BYTES
        n -= LENGTH_BYTES
        if n < length:
            begin_frame(link, p, n, length)
            return
        handle(link, p, length, 0)
        if link.down:
            return
        p += length
        n -= length
    memcpy(link.length, p, n)
    link.length_have = <uint32_t> n


cdef ssize_t decrypt(Link* link, uint8_t* p, uint64_t n) noexcept nogil:
    """As link_read. Only OpenSSL knows whether there is more, in the socket or with itself."""
    cdef ssize_t got = tls_read(link.tls, p, n)
    if got > 0:
        atomic_tally_i64(&link.bytes_in, got)
        return got
    link.readable = False
    if got != TLS_WANTS_READ and got != TLS_WANTS_WRITE:
        link_fail(link, LINK_BROKEN)
    return 0


cdef ssize_t link_read(Link* link, uint8_t* p, uint64_t n) noexcept nogil:
    """Bytes; 0: nothing now, or the link has failed."""
    cdef ssize_t got
    if link.tls != NULL:
        return decrypt(link, p, n)
    got = read(link.fd, p, n)
    if got > 0:
        atomic_tally_i64(&link.bytes_in, got)
        # A short read has emptied the socket; the next bytes come with an event of their own.
        if <uint64_t> got < n and not link.peer_closed:
            link.readable = False
        return got
    if got < 0 and (errno == EAGAIN or errno == EINTR):
        link.readable = errno == EINTR
        return 0
    link_fail(link, LINK_BROKEN)
    return 0


cdef void link_receive(Link* link) noexcept nogil:
    cdef uint8_t* buffer = link.loop.buffer
    cdef uint64_t have
    cdef int64_t until = link.bytes_in + TURN_READ_BYTES
    cdef ssize_t got
    while link.readable and not link.down:
        if link.bytes_in >= until:
            link.loop.behind = True
            return
        if link.frame != NULL:
            have = link.frame_bytes - link.frame_have
            got = link_read(link, link.frame + link.frame_have, min(have, <uint64_t> READ_BYTES))
            link.frame_have += <uint64_t> got
            if got > 0 and link.awaited.arriving != NULL:
                link.awaited.arriving(link.awaited, link.frame, link.frame_have)
            have = link.frame_bytes - link.frame_have
            if have == 0:
                end_frame(link)
            elif have < READ_BYTES:
                wake_for(link, have)
            continue
        have = link.length_have
        memcpy(buffer, link.length, have)
        got = link_read(link, buffer + have, LOOP_BUFFER_BYTES - have)
        if got > 0:
            take(link, buffer, have + <uint64_t> got)
