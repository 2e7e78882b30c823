"""What becomes of a batch when its answer is there (see client_outcome.pxd)."""
from libc.stdint cimport INT16_MAX, INT32_MAX, uint32_t, uint8_t
from libc.stdlib cimport calloc, free

from kbroker.ext.atomics cimport (
    atomic_add_relaxed_i64, atomic_load_i32, atomic_store_i32, atomic_store_relaxed_i32,
    atomic_tally_i32,
)
from kbroker.ext.client_accumulator cimport accumulator_forget
from kbroker.ext.client_batch cimport (
    ERROR_CLOSED, ERROR_PURGED, OUTCOME_DONE, OUTCOME_FAILED, OUTCOME_PENDING, OUTCOME_SPLIT,
    RecordFault, batch_ref, batch_release, batch_root, batch_settle, batch_split, batch_unref,
    text_copy,
)
from kbroker.ext.client_produce cimport produce_fault
from kbroker.ext.client_peers cimport (
    NO_PRODUCER_ID, RETRIABLE_CODES, TXN_LOST, WISH_METADATA, WISH_PARTITIONS, WISH_PRODUCER_ID,
    sender_wish, settled_put,
)
from kbroker.ext.client_topic cimport chance_of
from kbroker.ext.posix cimport pthread_mutex_lock, pthread_mutex_unlock
from kbroker.ext.wire cimport Slice

cdef enum:
    FLEXIBLE = 9
    # Metadata is stale (Java's InvalidMetadataException).
    CODE_UNKNOWN_TOPIC_OR_PARTITION = 3
    CODE_LEADER_NOT_AVAILABLE = 5
    CODE_NOT_LEADER = 6
    CODE_REPLICA_NOT_AVAILABLE = 9
    CODE_STORAGE_ERROR = 56
    CODE_LISTENER_NOT_FOUND = 72
    CODE_FENCED_LEADER_EPOCH = 74
    CODE_UNKNOWN_TOPIC_ID = 100
    CODE_INCONSISTENT_TOPIC_ID = 103
    # Fatal for a producer with an id.
    CODE_CLUSTER_AUTHORIZATION_FAILED = 31
    CODE_UNSUPPORTED_VERSION = 35
    CODE_INVALID_PRODUCER_ID_MAPPING = 49
    CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    CODE_PRODUCER_FENCED = 90
    # Sequences.
    CODE_OUT_OF_ORDER_SEQUENCE = 45
    CODE_DUPLICATE_SEQUENCE = 46
    CODE_UNKNOWN_PRODUCER_ID = 59


# ---- sequences

cdef int32_t sequence_after(int32_t sequence, int32_t count) noexcept nogil:
    """They wrap to 0 behind the largest int32."""
    if sequence > INT32_MAX - count:
        return count - (INT32_MAX - sequence) - 1
    return sequence + count


cdef int32_t last_sequence(const ClientBatch* b) noexcept nogil:
    return sequence_after(b.base_sequence, b.builder.count - 1)


cdef bint precedes(int32_t sequence, int32_t other) noexcept nogil:
    cdef uint32_t ahead = (<uint32_t> other - <uint32_t> sequence) & <uint32_t> INT32_MAX
    return 0 < ahead <= INT32_MAX // 2


cdef void flight_insert(Part* part, ClientBatch* b) noexcept nogil:
    cdef ClientBatch** link = &part.flight
    while link[0] != NULL and precedes(link[0].base_sequence, b.base_sequence):
        link = &link[0].flight_next
    b.flight_next = link[0]
    link[0] = b


cdef void flight_remove(Part* part, ClientBatch* b) noexcept nogil:
    cdef ClientBatch** link = &part.flight
    while link[0] != NULL:
        if link[0] == b:
            link[0] = b.flight_next
            b.flight_next = NULL
            return
        link = &link[0].flight_next


cdef bint stale_producer(const Sender* s, const Part* part) noexcept nogil:
    return part.producer_id != s.producer_id or part.producer_epoch != s.producer_epoch


cdef void sequences_begin(Sender* s, Part* part) noexcept nogil:
    """At 0 with the producer's current id and epoch; what is on its way or waits to be sent again
    is numbered anew, in its order."""
    cdef ClientBatch* b = part.flight
    cdef int32_t sequence = 0
    while b != NULL:
        b.producer_id = s.producer_id
        b.producer_epoch = s.producer_epoch
        b.base_sequence = sequence
        b.stamped = False
        b.sequence_reset = True
        sequence = sequence_after(sequence, b.builder.count)
        b = b.flight_next
    part.producer_id = s.producer_id
    part.producer_epoch = s.producer_epoch
    part.next_sequence = sequence
    part.last_acked_sequence = -1


cdef void sequence_assign(Sender* s, Part* part, ClientBatch* b) noexcept nogil:
    if stale_producer(s, part) and part.flight == NULL:
        sequences_begin(s, part)
    b.producer_id = s.producer_id
    b.producer_epoch = s.producer_epoch
    b.base_sequence = part.next_sequence
    b.stamped = False
    part.next_sequence = sequence_after(part.next_sequence, b.builder.count)
    flight_insert(part, b)


cdef bint must_be_added(Sender* s, Part* part) noexcept nogil:
    """Python is to make the partition part of the transaction first."""
    if not s.transactional or s.adds_partitions \
            or atomic_load_i32(&part.txn) == atomic_load_i32(&s.txn):
        return False
    atomic_store_i32(&part.txn_wanted, 1)
    sender_wish(s, WISH_PARTITIONS)
    return True


cdef bint sequence_blocks(Sender* s, Part* part, const ClientBatch* b) noexcept nogil:
    if s.producer_id == NO_PRODUCER_ID or must_be_added(s, part):
        return True
    if b.base_sequence < 0:
        # Behind batches of another epoch, or of a fate unknown, a new one would leave a gap. What
        # is being retried keeps the rest back (one in flight), and so does the first of an id: a
        # broker that does not know the id takes any sequence, and the next one in its place.
        return part.flight != NULL and (
            stale_producer(s, part)
            or part.flight.attempts > 0
            or part.known_producer_id != s.producer_id
        ) or part.unresolved_sequence >= 0
    return part.flight != NULL and part.flight != b


cdef void bump_for(Sender* s, Part* part) noexcept nogil:
    s.bump_wanted = True
    if not part.rewrite:
        part.rewrite = True
        s.rewrites += 1


cdef void mark_unresolved(Sender* s, Part* part, const ClientBatch* b) noexcept nogil:
    if part.unresolved_sequence < 0:
        s.unresolved += 1
    part.unresolved_sequence = max(part.unresolved_sequence, sequence_after(last_sequence(b), 1))


cdef bint is_next(const Part* part, int32_t sequence) noexcept nogil:
    return sequence == sequence_after(part.last_acked_sequence, 1) \
        if part.last_acked_sequence >= 0 else sequence == 0


cdef bint is_overtaken(const Part* part, int32_t sequence) noexcept nogil:
    """What comes behind it was taken: its turn is over for good."""
    return part.last_acked_sequence >= 0 and not precedes(part.last_acked_sequence, sequence)


cdef void rewrite_all(Sender* s) noexcept nogil:
    cdef Part* part
    cdef int32_t left = 0
    cdef int32_t i
    for i in range(s.active_count):
        part = s.active[i]
        if not part.rewrite:
            continue
        if s.transactional and not stale_producer(s, part):
            left += 1               # when its transaction has ended, there is another epoch
            continue
        sequences_begin(s, part)
        part.rewrite = False
        if part.unresolved_sequence >= 0:
            part.unresolved_sequence = -1
            s.unresolved -= 1
    s.rewrites = left


cdef void sequences_settle(Sender* s) noexcept nogil:
    cdef Part* part
    cdef int32_t i
    if s.unresolved > 0:
        for i in range(s.active_count):
            part = s.active[i]
            if part.unresolved_sequence >= 0 and part.flight == NULL:
                if not is_next(part, part.next_sequence):
                    bump_for(s, part)
                part.unresolved_sequence = -1
                s.unresolved -= 1
    if s.bump_wanted:
        s.bump_wanted = False
        if s.transactional:
            atomic_store_i32(&s.txn_unsure, 1)
        elif s.producer_epoch == INT16_MAX:
            s.producer_id = NO_PRODUCER_ID      # epochs are used up: another id
        elif s.producer_id != NO_PRODUCER_ID:
            s.producer_epoch += 1
    if s.producer_id == NO_PRODUCER_ID:
        if not s.transactional:
            sender_wish(s, WISH_PRODUCER_ID)
        return
    if s.rewrites > 0:
        rewrite_all(s)


# ---- outcomes

cdef bint is_news(const Sender* s, const ClientBatch* b) noexcept nogil:
    """False for a failure that the application knows of: the end of a transaction tells of its own,
    and the rest it gave up itself."""
    return not s.transactional and b.local_error != ERROR_CLOSED and b.local_error != ERROR_PURGED


cdef void settle(Sender* s, ClientBatch* b, int state) noexcept nogil:
    """The outcome stands in the batch. The sender's reference goes."""
    cdef ClientBatch* parent = b.parent
    if not b.in_call:
        batch_release(b)
    b.unseen = state == OUTCOME_FAILED and is_news(s, b)
    if batch_settle(b, state):
        b.unseen = False                # callbacks are told
        settled_put(s, b)
    elif b.unseen:
        batch_ref(batch_root(b))
        settled_put(s, b)
    accumulator_forget(s.a, b)
    batch_unref(b)
    if parent != NULL:
        parent.children_left -= 1
        if parent.children_left == 0:
            settle(s, parent, OUTCOME_SPLIT)


cdef void batch_succeed(
    Sender* s, ClientBatch* b, int64_t base_offset, int64_t append_time
) noexcept nogil:
    b.base_offset = base_offset
    b.append_time = append_time
    atomic_add_relaxed_i64(&s.a.totals.acked, b.builder.count)
    settle(s, b, OUTCOME_DONE)


cdef void batch_fail(
    Sender* s, ClientBatch* b, int16_t code, int32_t local_error
) noexcept nogil:
    b.error_code = code
    b.local_error = local_error
    if s.transactional:
        if atomic_load_i32(&s.txn_error) == 0:
            atomic_store_i32(&s.txn_error, code if local_error == 0 and code != 0 else TXN_LOST)
        atomic_store_i32(&s.txn_closed, 1)
    atomic_add_relaxed_i64(&s.a.totals.errors, b.builder.count)
    settle(s, b, OUTCOME_FAILED)


cdef void batch_gives_up(Sender* s, ClientBatch* b, int32_t local_error) noexcept nogil:
    cdef Part* part = <Part*> b.part
    if b.base_sequence >= 0:
        flight_remove(part, b)
        mark_unresolved(s, part, b)
    batch_fail(s, b, b.error_code, local_error)


cdef bint is_fatal(int16_t code) noexcept nogil:
    return code in (
        CODE_CLUSTER_AUTHORIZATION_FAILED, CODE_UNSUPPORTED_VERSION,
        CODE_INVALID_PRODUCER_ID_MAPPING, CODE_TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        CODE_PRODUCER_FENCED,
    )


cdef void copy_faults(ClientBatch* b, const Answer* answer, bint flexible) noexcept nogil:
    cdef const uint8_t* p = answer.faults
    cdef int32_t count = min(answer.faults_count, INT16_MAX)
    cdef int32_t i
    cdef Slice message
    if b.message != NULL:
        free(b.message)
    b.message = text_copy(answer.message.p, answer.message.n)
    if count <= 0:
        return
    b.faults = <RecordFault*> calloc(count, sizeof(RecordFault))
    if b.faults == NULL:
        return
    for i in range(count):
        p = produce_fault(p, flexible, &b.faults[i].index, &message)
        b.faults[i].message = text_copy(message.p, message.n)
    b.faults_count = <int16_t> count


cdef void batch_refused(
    Sender* s, ClientBatch* b, const Answer* answer, int16_t version
) noexcept nogil:
    """The broker's last word."""
    cdef Part* part = <Part*> b.part
    if b.base_sequence >= 0:
        flight_remove(part, b)
        if is_fatal(answer.code):
            atomic_store_i32(&s.fatal_code, answer.code)
        elif answer.code == CODE_OUT_OF_ORDER_SEQUENCE \
                and is_overtaken(part, b.base_sequence):
            pass                    # no gap: what comes behind it keeps its sequences
        elif answer.code == CODE_OUT_OF_ORDER_SEQUENCE or b.attempts < s.a.settings.retries:
            bump_for(s, part)
        else:
            mark_unresolved(s, part, b)
    copy_faults(b, answer, version >= FLEXIBLE)
    batch_fail(s, b, answer.code, 0)


# ---- again

cdef int64_t backoff_ns(Sender* s, int32_t attempts) noexcept nogil:
    """Twice as long each time up to the bound, a fifth more or less by chance."""
    cdef int64_t wait = s.a.settings.retry_ns
    cdef int32_t _i
    for _i in range(1, min(attempts, 62)):
        if wait >= s.a.settings.retry_max_ns:
            break
        wait *= 2
    wait = min(wait, s.a.settings.retry_max_ns)
    return wait * (800 + <int64_t> (chance_of(&s.a.chance) % 401)) // 1000


cdef void put_back(Part* part, ClientBatch* b) noexcept nogil:
    """To the front of the deque; behind those that come before it by sequence."""
    cdef ClientBatch** link = &part.head
    pthread_mutex_lock(&part.lock)
    while b.base_sequence >= 0 and link[0] != NULL and link[0].base_sequence >= 0 \
            and precedes(link[0].base_sequence, b.base_sequence):
        link = &link[0].next
    b.next = link[0]
    link[0] = b
    if b.next == NULL:
        part.tail = b
    atomic_tally_i32(&part.length, 1)
    pthread_mutex_unlock(&part.lock)


cdef bint is_retriable(const Sender* s, int16_t code) noexcept nogil:
    return 0 <= code < RETRIABLE_CODES and s.retriable[code] != 0


cdef bint may_retry(
    Sender* s, Part* part, const ClientBatch* b, const Answer* answer, int64_t now_ns
) noexcept nogil:
    if now_ns - b.created_ns >= s.a.settings.delivery_ns \
            or b.attempts >= s.a.settings.retries:
        return False
    if b.base_sequence >= 0 and answer.code == CODE_UNKNOWN_PRODUCER_ID:
        if answer.log_start != -1 and not b.sequence_reset:
            bump_for(s, part)
        return True
    if b.base_sequence >= 0 and answer.code == CODE_OUT_OF_ORDER_SEQUENCE:
        if is_overtaken(part, b.base_sequence):
            # Under another number it would come behind those, and so would those once more whose
            # answers were lost.
            return False
        if part.unresolved_sequence < 0 and (
            b.sequence_reset or not is_next(part, b.base_sequence)
        ):
            return True             # it only came before its turn
        if part.unresolved_sequence < 0 or part.unresolved_sequence == b.base_sequence:
            bump_for(s, part)
        return True
    return is_retriable(s, answer.code)


cdef void batch_again(
    Sender* s, Part* part, ClientBatch* b, const Answer* answer, int64_t now_ns
) noexcept nogil:
    b.attempts += 1
    b.error_code = answer.code
    b.attempt_epoch = atomic_load_i32(&part.leader_epoch)
    b.retry_ns = now_ns + backoff_ns(s, b.attempts)
    atomic_add_relaxed_i64(&s.a.totals.retries, 1)
    put_back(part, b)


cdef bint split_again(Sender* s, Part* part, ClientBatch* b) noexcept nogil:
    """In smaller pieces, as if none of them had been sent. False: that cannot be done."""
    cdef size_t most = s.a.settings.batch_bytes
    cdef int32_t count = 0
    cdef int32_t sequence = b.base_sequence
    cdef int32_t i
    if b.split_off or b.builder.buffer.n <= most:
        most = b.builder.buffer.n // 2
    b.children = batch_split(b, most, &count)
    if b.children == NULL:
        return False
    atomic_store_relaxed_i32(&part.topic.ratio_milli, 1000)
    atomic_add_relaxed_i64(&s.a.totals.splits, 1)
    if sequence >= 0:
        flight_remove(part, b)
    batch_release(b)
    b.children_count = b.children_left = count
    for i in range(count):
        batch_ref(b.children[i])        # the sender's
        b.children[i].producer_id = b.producer_id
        b.children[i].producer_epoch = b.producer_epoch
        if sequence >= 0:
            b.children[i].base_sequence = sequence
            sequence = sequence_after(sequence, b.children[i].builder.count)
            flight_insert(part, b.children[i])
    for i in range(count - 1, -1, -1):
        put_back(part, b.children[i])
    return True


# ---- the answer

cdef void leader_changed(Sender* s, Part* part, const Answer* answer) noexcept nogil:
    """KIP-951: the broker says who leads now."""
    if answer.leader < 0 or answer.leader_epoch <= atomic_load_i32(&part.leader_epoch):
        return
    atomic_store_i32(&part.leader, answer.leader)
    atomic_store_i32(&part.leader_epoch, answer.leader_epoch)


cdef bint is_stale(int16_t code) noexcept nogil:
    return code in (
        CODE_UNKNOWN_TOPIC_OR_PARTITION, CODE_LEADER_NOT_AVAILABLE, CODE_NOT_LEADER,
        CODE_REPLICA_NOT_AVAILABLE, CODE_NETWORK_EXCEPTION, CODE_STORAGE_ERROR,
        CODE_LISTENER_NOT_FOUND, CODE_FENCED_LEADER_EPOCH, CODE_UNKNOWN_TOPIC_ID,
        CODE_INCONSISTENT_TOPIC_ID,
    )


cdef void note_acked(Part* part, const ClientBatch* b) noexcept nogil:
    cdef int32_t last = last_sequence(b)
    if b.stamped:                   # else it was numbered anew on its way, maybe under another id
        part.known_producer_id = b.producer_id
    if b.producer_id != part.producer_id or b.producer_epoch != part.producer_epoch:
        return                      # given up, and sequences have begun anew since
    if part.last_acked_sequence < 0 or precedes(part.last_acked_sequence, last):
        part.last_acked_sequence = last


cdef void batch_acked(Sender* s, Part* part, ClientBatch* b, const Answer* answer) noexcept nogil:
    if b.base_sequence >= 0:
        note_acked(part, b)
        if answer.base_offset >= 0:
            part.last_acked_offset = max(
                part.last_acked_offset, answer.base_offset + b.builder.count - 1
            )
        flight_remove(part, b)
    if atomic_load_i32(&b.state) == OUTCOME_PENDING:
        batch_succeed(s, b, answer.base_offset, answer.append_time)


cdef void batch_answered(
    Sender* s, ClientBatch* b, const Answer* answer, int16_t version, int64_t now_ns
) noexcept nogil:
    cdef Part* part = <Part*> b.part
    cdef int16_t code = answer.code
    if code != CODE_NONE:
        leader_changed(s, part, answer)
        if is_stale(code):
            sender_wish(s, WISH_METADATA)
    if code == CODE_NONE or code == CODE_DUPLICATE_SEQUENCE:
        batch_acked(s, part, b, answer)
    elif atomic_load_i32(&b.state) != OUTCOME_PENDING:
        pass                        # it expired meanwhile
    elif code == CODE_MESSAGE_TOO_LARGE and b.builder.count > 1 and split_again(s, part, b):
        pass
    elif may_retry(s, part, b, answer, now_ns):
        batch_again(s, part, b, answer, now_ns)
    else:
        batch_refused(s, b, answer, version)
    # What settled while the request was on its way gives its piece back now.
    if atomic_load_i32(&b.state) != OUTCOME_PENDING:
        batch_release(b)
