"""The sender (see client_sender.pxd)."""
from libc.stdint cimport INT64_MAX, int16_t, uint8_t
from libc.stdlib cimport realloc
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64, atomic_fence, atomic_load_i32, atomic_load_ptr, atomic_load_relaxed_i32,
    atomic_store_i32, atomic_store_i64, atomic_store_ptr, atomic_store_relaxed_i32,
    atomic_store_relaxed_i64, atomic_tally_i32,
)
from kbroker.ext.batch cimport BATCH_OK
from kbroker.ext.batch_build cimport BatchStamp, builder_stamp, builder_stamp_summed
from kbroker.ext.client_accumulator cimport Accumulator
from kbroker.ext.client_batch cimport (
    ClientBatch, ERROR_CLOSED, ERROR_COMPRESSION, ERROR_EXPIRED, ERROR_PURGED, OUTCOME_PENDING,
    batch_close, batch_pack, batch_ref, batch_sum, batch_unref,
)
from kbroker.ext.client_link cimport (
    Call, LINK_BROKEN, LINK_CORRUPT, LINK_OK, LINK_TIMEOUT, link_submit,
)
from kbroker.ext.client_outcome cimport (
    CODE_CORRUPT_MESSAGE, CODE_NETWORK_EXCEPTION, CODE_NONE, CODE_REQUEST_TIMED_OUT,
    batch_answered, batch_gives_up, sequence_assign, sequence_blocks, sequences_settle,
)
from kbroker.ext.client_peers cimport (
    NO_PRODUCER_ID, Peer, Sender, WISH_DROP, WISH_LINK, WISH_METADATA, sender_wish,
)
from kbroker.ext.client_produce cimport (
    Answer, PRODUCE_TOPIC_IDS, ProduceCall, produce_decode, produce_encode, produce_free,
    produce_new,
)
from kbroker.ext.client_ready cimport ready_loads, ready_look
from kbroker.ext.client_topic cimport Part, Topic
from kbroker.ext.clock cimport monotonic_ns
from kbroker.ext.compression cimport CODEC_NONE
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.wire cimport Slice

cdef enum:
    REQUEST_BATCHES_MAX = 4096
    RATIO_BETTER_MILLI = 5          # as Java's CompressionRatioEstimator
    RATIO_WORSE_MILLI = 50
    BATCH_FRAME_BYTES = 64          # of a request, for each batch
    AHEAD_BYTES_MIN = 6 << 20       # near a cache; with less the threads sleep too often
    PACE_BYTES_NS = 2               # more than 2 GB/s no producer sends
    PACE_NS = 1_000_000_000


# ---- what Python told, what others brought

cdef void take_told(Sender* s) noexcept nogil:
    pthread_mutex_lock(&s.a.lock)
    if s.told:
        s.told = False
        if s.told_error != 0:
            atomic_store_i32(&s.fatal_code, s.told_error)
        elif s.transactional or s.producer_id == NO_PRODUCER_ID:
            # Else it was asked for twice, and there are batches of the first one already.
            s.producer_id = s.told_producer_id
            s.producer_epoch = s.told_producer_epoch
    pthread_mutex_unlock(&s.a.lock)


cdef void take_fresh(Sender* s) noexcept nogil:
    cdef Part* part
    cdef void* grown
    if atomic_load_ptr(<void**> &s.a.fresh) == NULL:
        return
    pthread_mutex_lock(&s.a.lock)
    while s.a.fresh != NULL:
        if s.active_count == s.active_room:
            grown = realloc(s.active, sizeof(void*) * (2 * <size_t> s.active_room + 16))
            if grown == NULL:
                break               # the next turn tries again
            s.active = <Part**> grown
            s.active_room = 2 * s.active_room + 16
        part = s.a.fresh
        atomic_store_ptr(<void**> &s.a.fresh, part.next_fresh)
        s.active[s.active_count] = part
        s.active_count += 1
    pthread_mutex_unlock(&s.a.lock)


cdef ClientBatch* pop_locked(Part* part) noexcept nogil:
    """The first batch of the deque, for good; NULL: there is none."""
    cdef ClientBatch* b = part.head
    if b != NULL:
        part.head = b.next
        if part.head == NULL:
            part.tail = NULL
        atomic_tally_i32(&part.length, -1)
        batch_close(b)
        b.next = NULL
    return b


cdef ClientBatch* take_first(Part* part) noexcept nogil:
    cdef ClientBatch* b
    pthread_mutex_lock(&part.lock)
    b = pop_locked(part)
    pthread_mutex_unlock(&part.lock)
    return b


cdef void expire(Sender* s, int64_t now_ns) noexcept nogil:
    """Batches past delivery.timeout.ms, in the deques and on their way."""
    cdef int64_t limit = now_ns - s.a.settings.delivery_ns
    cdef int64_t soonest = INT64_MAX
    cdef ClientBatch* b
    cdef ClientBatch* after
    cdef Part* part
    cdef int32_t i
    for i in range(s.active_count):
        part = s.active[i]
        while part.head != NULL and part.head.created_ns <= limit:
            b = take_first(part)
            batch_gives_up(s, b, ERROR_EXPIRED)
        if part.head != NULL:
            soonest = min(soonest, part.head.created_ns)
        b = part.flight
        while b != NULL:
            after = b.flight_next
            if b.in_call and b.created_ns <= limit:
                batch_gives_up(s, b, ERROR_EXPIRED)
            else:
                soonest = min(soonest, b.created_ns)
            b = after
    # What is created from now on expires later still.
    soonest = min(soonest, now_ns)
    s.expiry_ns = min(soonest + s.a.settings.delivery_ns, now_ns + s.a.settings.delivery_ns // 4)


cdef void fail_queued(Sender* s, int16_t code, int32_t local_error) noexcept nogil:
    """All that waits; with its sequence it leaves a gap as what expires does."""
    cdef ClientBatch* b
    cdef int32_t i
    for i in range(s.active_count):
        b = take_first(s.active[i])
        while b != NULL:
            if code != 0:
                b.error_code = code
            batch_gives_up(s, b, local_error)
            b = take_first(s.active[i])


cdef void purge(Sender* s) noexcept nogil:
    cdef bint queued, flying
    cdef ClientBatch* b
    cdef ClientBatch* after
    cdef int64_t asked
    cdef int32_t i
    pthread_mutex_lock(&s.a.lock)
    asked = s.purges_asked
    queued = s.purge_queued
    flying = s.purge_flying
    s.purge_queued = s.purge_flying = False
    pthread_mutex_unlock(&s.a.lock)
    if queued:
        fail_queued(s, 0, ERROR_PURGED)
    if flying:
        for i in range(s.peers_count):
            purge_calls(s, s.peers[i])
        for i in range(s.active_count):
            b = s.active[i].flight
            while b != NULL:
                after = b.flight_next
                if b.in_call:
                    batch_gives_up(s, b, ERROR_PURGED)
                b = after
    atomic_store_i64(&s.purges_done, asked)


cdef void purge_calls(Sender* s, Peer* peer) noexcept nogil:
    """Batches without a sequence are found by their requests only."""
    cdef ProduceCall* call = <ProduceCall*> peer.calls
    cdef int32_t i
    while call != NULL:
        for i in range(call.count):
            if call.batches[i].base_sequence < 0 \
                    and atomic_load_i32(&call.batches[i].state) == OUTCOME_PENDING:
                batch_gives_up(s, call.batches[i], ERROR_PURGED)
        call = call.next


# ---- a request

cdef int64_t expected_bytes(Sender* s, Part* part, const ClientBatch* b) noexcept nogil:
    cdef int64_t n = b.builder.buffer.n
    if s.a.settings.codec != CODEC_NONE and not b.packed:
        n = n * atomic_load_relaxed_i32(&part.topic.ratio_milli) // 1000
    return n + BATCH_FRAME_BYTES


cdef ClientBatch* drain_part(
    Sender* s, Part* part, int64_t room, int64_t now_ns
) noexcept nogil:
    """The first batch where it may go now, and into what is left of the request."""
    cdef ClientBatch* b
    if part.head == NULL:
        return NULL
    if s.a.settings.in_flight_max == 1 and part.in_flight > 0:
        return NULL
    pthread_mutex_lock(&part.lock)
    b = part.head
    if b != NULL and (
        (b.attempts > 0 and b.retry_ns > now_ns
         and atomic_load_relaxed_i32(&part.leader_epoch) <= b.attempt_epoch)
        or expected_bytes(s, part, b) > room
        or (s.a.settings.idempotent and sequence_blocks(s, part, b))
    ):
        b = NULL
    else:
        b = pop_locked(part)
    pthread_mutex_unlock(&part.lock)
    return b


cdef void learn_ratio(Topic* t, int64_t plain, int64_t packed) noexcept nogil:
    cdef int32_t seen = <int32_t> min(packed * 1000 // max(plain, <int64_t> 1), <int64_t> 4000)
    cdef int32_t now = atomic_load_relaxed_i32(&t.ratio_milli)
    if seen > now:
        now = max(now + RATIO_WORSE_MILLI, seen)
    else:
        now = max(now - RATIO_BETTER_MILLI, seen)
    atomic_store_relaxed_i32(&t.ratio_milli, now)


cdef bint prepare(Sender* s, Part* part, ClientBatch* b) noexcept nogil:
    """Compression, sequence, header and CRC. False: it failed, for good."""
    cdef int64_t plain = b.builder.buffer.n
    cdef BatchStamp stamp
    if not b.packed and s.a.settings.codec != CODEC_NONE:
        if batch_pack(b, s.a.settings.codec, s.a.settings.level) != BATCH_OK:
            batch_gives_up(s, b, ERROR_COMPRESSION)
            return False
        learn_ratio(part.topic, plain, b.builder.buffer.n)
    if s.a.settings.idempotent and b.base_sequence < 0:
        sequence_assign(s, part, b)
    if not b.stamped:
        memset(&stamp, 0, sizeof(stamp))
        stamp.leader_epoch = -1
        stamp.producer_id = b.producer_id
        stamp.producer_epoch = b.producer_epoch
        stamp.base_sequence = b.base_sequence
        stamp.transactional = s.transactional
        if s.a.settings.codec == CODEC_NONE:
            batch_sum(b)
            builder_stamp_summed(&b.builder, b.builder.buffer.p, b.builder.buffer.n, &stamp, b.crc)
        else:
            builder_stamp(
                &b.builder, b.builder.buffer.p, b.builder.buffer.n, s.a.settings.codec, &stamp
            )
        b.stamped = True
    return True


cdef ProduceCall* collect(Sender* s, Peer* peer, int64_t now_ns) noexcept nogil:
    """A request with one batch of each partition that the broker leads, up to max.request.size;
    the next one begins where this one ended."""
    cdef int64_t room = s.a.settings.request_bytes_max
    cdef int32_t most = min(s.active_count, REQUEST_BATCHES_MAX)
    cdef ProduceCall* call = NULL
    cdef ClientBatch* b
    cdef Part* part
    cdef int32_t _i
    for _i in range(s.active_count):
        if s.cursor >= s.active_count:
            s.cursor = 0
        part = s.active[s.cursor]
        s.cursor += 1
        if part.head == NULL or atomic_load_relaxed_i32(&part.leader) != peer.node:
            continue
        # One batch goes in whatever its size; a full request ends the round.
        b = drain_part(s, part, INT64_MAX if call == NULL else room, now_ns)
        if b == NULL:
            continue
        if call == NULL:
            call = produce_new(most)
            if call == NULL:
                batch_gives_up(s, b, ERROR_COMPRESSION)
                return NULL
        if not prepare(s, part, b):
            continue
        room -= <int64_t> b.builder.buffer.n + BATCH_FRAME_BYTES
        call.bytes += b.builder.buffer.n
        call.batches[call.count] = b
        call.count += 1
        batch_ref(b)                # the request's
        b.in_call = True
        part.in_flight += 1
        if room <= 0 or call.count == most:
            break
    if call != NULL and call.count == 0:
        produce_free(call)
        return NULL
    return call


cdef bint names_known(const ProduceCall* call) noexcept nogil:
    cdef int32_t i
    for i in range(call.count):
        if not (<Part*> call.batches[i].part).topic.has_id:
            return False
    return True


cdef void send_call(Sender* s, Peer* peer, ProduceCall* call, int64_t now_ns) noexcept nogil:
    cdef int16_t version = peer.version
    cdef Slice transactional_id
    transactional_id.p = s.transactional_id
    transactional_id.n = s.transactional_id_bytes if s.transactional else -1
    call.sender = s
    call.peer = peer
    call.sent_ns = now_ns
    call.call.done = produce_done
    call.call.owner = call
    call.call.deadline_ns = now_ns + s.a.settings.request_timeout_ns
    if version >= PRODUCE_TOPIC_IDS and not names_known(call):
        version = PRODUCE_TOPIC_IDS - 1
    peer.in_flight += 1
    call.next = <ProduceCall*> peer.calls
    peer.calls = call
    if not produce_encode(
        call, s.driver.loop, version, s.a.settings.acks,
        <int32_t> (s.a.settings.request_timeout_ns // 1000000), transactional_id,
    ) or link_submit(s.driver.loop, atomic_load_i32(&peer.link), &call.call) != 0:
        # The link broke before Python could tell of it.
        atomic_store_i32(&peer.link, -1)
        sender_wish(s, WISH_LINK | WISH_METADATA)
        produce_done(&call.call, LINK_BROKEN, NULL, 0)
        return
    atomic_add_relaxed_i64(&s.a.totals.requests, 1)
    atomic_add_relaxed_i64(&s.a.totals.batches, call.count)
    atomic_add_relaxed_i64(&s.a.totals.request_bytes, call.bytes)


cdef void unchain(Peer* peer, ProduceCall* call) noexcept nogil:
    cdef ProduceCall** link = <ProduceCall**> &peer.calls
    while link[0] != call:
        link = &link[0].next
    link[0] = call.next


cdef void answers_for_all(ProduceCall* call, int16_t code) noexcept nogil:
    cdef int32_t i
    memset(call.answers, 0, sizeof(Answer) * call.count)
    for i in range(call.count):
        call.answers[i].code = code
        call.answers[i].base_offset = call.answers[i].append_time = -1
        call.answers[i].log_start = -1
        call.answers[i].leader = call.answers[i].leader_epoch = -1
        call.answers[i].message.n = -1


cdef void produce_done(Call* done, int code, const uint8_t* p, size_t n) noexcept nogil:
    cdef ProduceCall* call = <ProduceCall*> done.owner
    cdef Sender* s = <Sender*> call.sender
    cdef Peer* peer = <Peer*> call.peer
    cdef int64_t now_ns = monotonic_ns()
    cdef int32_t i
    peer.in_flight -= 1
    unchain(peer, call)
    if code == LINK_OK and not done.answered:
        answers_for_all(call, CODE_NONE)
    elif code == LINK_OK and produce_decode(call, p, n):
        note_answer(s, peer, call, now_ns)
    else:
        if code == LINK_OK:         # from such a broker nothing more is believed
            peer.drop = True
            sender_wish(s, WISH_DROP)
        answers_for_all(
            call, CODE_REQUEST_TIMED_OUT if code == LINK_TIMEOUT
            else CODE_CORRUPT_MESSAGE if code in (LINK_OK, LINK_CORRUPT)
            else CODE_NETWORK_EXCEPTION,
        )
    for i in range(call.count):
        call.batches[i].in_call = False
        (<Part*> call.batches[i].part).in_flight -= 1
    for i in range(call.count):
        batch_answered(s, call.batches[i], &call.answers[i], done.api_version, now_ns)
        batch_unref(call.batches[i])
    produce_free(call)


cdef void note_pace(Sender* s, Peer* peer, int64_t took_ns, int64_t now_ns) noexcept nogil:
    """What is under way for as long as the quickest answer takes, of the broker that is farthest
    away, keeps all of them busy."""
    cdef int64_t pace_ns = 0
    cdef int32_t i
    if now_ns - peer.pace_ns > PACE_NS:
        peer.quickest_before_ns = peer.quickest_ns if peer.pace_ns else took_ns
        peer.quickest_ns = took_ns
        peer.pace_ns = now_ns
    peer.quickest_ns = min(peer.quickest_ns, took_ns)
    for i in range(s.peers_count):
        pace_ns = max(pace_ns, min(s.peers[i].quickest_ns, s.peers[i].quickest_before_ns))
    atomic_store_i64(&s.a.pool.ahead_max, max(<int64_t> AHEAD_BYTES_MIN, PACE_BYTES_NS * pace_ns))


cdef void note_answer(Sender* s, Peer* peer, ProduceCall* call, int64_t now_ns) noexcept nogil:
    cdef int64_t took_ns = now_ns - call.sent_ns
    if call.throttle_ms > 0:
        peer.throttled_until = now_ns + <int64_t> call.throttle_ms * 1000000
        atomic_add_relaxed_i64(&s.a.totals.throttle_ms, call.throttle_ms)
    note_pace(s, peer, took_ns, now_ns)
    atomic_add_relaxed_i64(&s.a.totals.latency_ns, took_ns)
    if took_ns > s.a.totals.latency_ns_max:
        atomic_store_relaxed_i64(&s.a.totals.latency_ns_max, took_ns)


# ---- a turn

cdef int64_t send_ready(Sender* s, int64_t now_ns) noexcept nogil:
    """Requests as long as brokers take them; the time when the next batch will be ready."""
    cdef bint sent = True
    cdef int64_t soonest = INT64_MAX
    cdef ProduceCall* call
    cdef Peer* peer
    cdef int32_t i
    while sent:
        sent = False
        soonest = ready_look(s, now_ns)
        for i in range(atomic_load_i32(&s.peers_count)):
            peer = s.peers[i]
            if peer.ready:
                peer.ready = False
                call = collect(s, peer, now_ns)
                if call != NULL:
                    send_call(s, peer, call, now_ns)
                    sent = True
    return soonest


cdef int64_t sender_drive(void* self, int64_t now_ns) noexcept nogil:
    cdef Sender* s = <Sender*> self
    cdef Accumulator* a = s.a
    cdef int64_t soonest
    cdef int16_t fatal
    atomic_store_i64(&a.sleeps_until, 0)
    atomic_store_i32(&a.kicked, 0)
    atomic_fence()
    take_told(s)
    take_fresh(s)
    if s.purge_queued or s.purge_flying:
        purge(s)
    fatal = <int16_t> atomic_load_i32(&s.fatal_code)
    if fatal != 0:
        fail_queued(s, fatal, 0)
    if now_ns >= s.expiry_ns or s.expiry_ns == INT64_MAX:
        expire(s, now_ns)
    if a.settings.idempotent and fatal == 0 and s.active_count > 0:
        sequences_settle(s)
    if a.settings.adaptive and s.active_count > 0:
        ready_loads(s, now_ns)
    soonest = min(send_ready(s, now_ns), s.expiry_ns if s.active_count > 0 else INT64_MAX)
    atomic_store_i64(&a.sleeps_until, soonest)
    atomic_fence()
    return now_ns if atomic_load_i32(&a.kicked) else soonest


cdef void sender_link_down(void* self, int32_t link, int code) noexcept nogil:
    cdef Sender* s = <Sender*> self
    cdef int32_t i
    for i in range(s.peers_count):
        if atomic_load_i32(&s.peers[i].link) == link:
            atomic_store_i32(&s.peers[i].link, -1)
            if s.active_count > 0:
                sender_wish(s, WISH_LINK | WISH_METADATA)


cdef void sender_stopped(void* self) noexcept nogil:
    """Every call is done: what is still there has no way out any more."""
    cdef Sender* s = <Sender*> self
    take_fresh(s)
    fail_queued(s, 0, ERROR_CLOSED)
