"""Producer state of a partition (see producers.pxd)."""
from libc.stdint cimport INT16_MAX, INT32_MAX, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport calloc, free, malloc

from kbroker.ext.batch cimport (
    NO_SEQUENCE,
    RECORDS_OFFSET,
    Record,
    RecordCursor,
    next_record,
    records_init,
)
from kbroker.ext.byte_table cimport bytes_hash, process_seed
from kbroker.ext.endian cimport load_i16, load_i32
from kbroker.ext.partition_transactions cimport (
    txns_begin,
    txns_clear,
    txns_finish,
    txns_free,
    txns_reserve,
    txns_take,
)

cdef enum:
    SLOTS_MIN = 8
    MARKER_KEY_BYTES = 4            # int16 version, int16 type
    MARKER_VALUE_BYTES = 6          # int16 version, int32 coordinator epoch
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


# ---- table

cdef Producers* producers_new() noexcept nogil:
    cdef Producers* ps = <Producers*> calloc(1, sizeof(Producers))
    if ps == NULL:
        return NULL
    ps.slots = <Producer**> calloc(SLOTS_MIN, sizeof(Producer*))
    if ps.slots == NULL:
        free(ps)
        return NULL
    ps.capacity = SLOTS_MIN
    return ps


cdef void producer_free(Producer* p) noexcept nogil:
    if p != NULL:
        free(p.verification)
        free(p)


cdef void producers_clear(Producers* ps) noexcept nogil:
    cdef int32_t i
    for i in range(ps.capacity):
        producer_free(ps.slots[i])
        ps.slots[i] = NULL
    ps.count = 0
    txns_clear(&ps.txns)


cdef void producers_free(Producers* ps) noexcept nogil:
    if ps == NULL:
        return
    producers_clear(ps)
    free(ps.slots)
    txns_free(&ps.txns)
    free(ps)


cdef inline int32_t slot_of(int64_t id, int32_t capacity) noexcept nogil:
    """A client may make up its ids: the hash is keyed, so that they do not collide by choice."""
    return <int32_t> (bytes_hash(process_seed(), <const uint8_t*> &id, sizeof(id))
                      & <uint32_t> (capacity - 1))


cdef int32_t producers_longest_search(const Producers* ps) noexcept nogil:
    cdef int32_t longest = 0
    cdef int32_t i
    for i in range(ps.capacity):
        if ps.slots[i] != NULL:
            longest = max(longest, (i - slot_of(ps.slots[i].id, ps.capacity)) & (ps.capacity - 1))
    return longest


cdef Producer* producers_find(const Producers* ps, int64_t id) noexcept nogil:
    cdef int32_t i = slot_of(id, ps.capacity)
    while ps.slots[i] != NULL:
        if ps.slots[i].id == id:
            return ps.slots[i]
        i = (i + 1) & (ps.capacity - 1)
    return NULL


cdef void place(Producer** slots, int32_t capacity, Producer* p) noexcept nogil:
    cdef int32_t i = slot_of(p.id, capacity)
    while slots[i] != NULL:
        i = (i + 1) & (capacity - 1)
    slots[i] = p


cdef bint rehash(Producers* ps, int32_t capacity) noexcept nogil:
    cdef Producer** slots = <Producer**> calloc(capacity, sizeof(Producer*))
    cdef int32_t i
    if slots == NULL:
        return False
    for i in range(ps.capacity):
        if ps.slots[i] != NULL:
            place(slots, capacity, ps.slots[i])
    free(ps.slots)
    ps.slots = slots
    ps.capacity = capacity
    return True


cdef void producer_forget(Producer* p) noexcept nogil:
    """What an entry says that has had no batch."""
    p.epoch = NO_PRODUCER_EPOCH
    p.coordinator_epoch = -1
    p.last_timestamp = -1
    p.txn.first_offset = -1
    p.first = 0
    p.count = 0


cdef Producer* producers_take(Producers* ps, int64_t id) noexcept nogil:
    cdef Producer* p = producers_find(ps, id)
    if p != NULL:
        return p
    if 2 * (ps.count + 1) > ps.capacity and not rehash(ps, 2 * ps.capacity):
        return NULL
    p = <Producer*> calloc(1, sizeof(Producer))
    if p == NULL:
        return NULL
    p.id = id
    producer_forget(p)
    place(ps.slots, ps.capacity, p)
    ps.count += 1
    return p


cdef void stop_verifying(Producer* p, int64_t since_ms) noexcept nogil:
    """Forget a verification that began then or before: nobody came back with it."""
    if p.verification != NULL and p.verification.since_ms <= since_ms:
        free(p.verification)
        p.verification = NULL


cdef int producers_expire(Producers* ps, int64_t now_ms, int64_t expiration_ms) noexcept nogil:
    cdef int32_t i
    cdef Producer* p
    cdef int gone = 0
    for i in range(ps.capacity):
        p = ps.slots[i]
        if p == NULL:
            continue
        stop_verifying(p, now_ms - expiration_ms)
        if p.txn.first_offset >= 0 or now_ms - p.last_timestamp < expiration_ms:
            continue
        if p.verification != NULL:
            producer_forget(p)
            continue
        producer_free(p)
        ps.slots[i] = NULL
        gone += 1
    # Holes would cut the chains of those that stay: the table is laid out again, in place of the
    # old one where there is no memory for another.
    if gone:
        ps.count -= gone
        if not rehash(ps, ps.capacity):
            close_holes(ps)
    return gone


cdef void close_holes(Producers* ps) noexcept nogil:
    """Take every producer out and put it back, until all stand where a search finds them."""
    cdef int32_t i
    cdef int32_t moved = 1
    cdef Producer* p
    while moved:
        moved = 0
        for i in range(ps.capacity):
            p = ps.slots[i]
            if p != NULL and producers_find(ps, p.id) == NULL:
                ps.slots[i] = NULL
                place(ps.slots, ps.capacity, p)
                moved = 1


# ---- sequences

cdef int32_t sequence_add(int32_t sequence, int32_t n) noexcept nogil:
    """Sequences wrap from INT32_MAX to 0."""
    if sequence > INT32_MAX - n:
        return n - (INT32_MAX - sequence) - 1
    return sequence + n


cdef inline int32_t sequence_subtract(int32_t sequence, int32_t n) noexcept nogil:
    if sequence < n:
        return INT32_MAX - (n - sequence) + 1
    return sequence - n


cdef inline int32_t last_sequence_of(const BatchInfo* info) noexcept nogil:
    if info.base_sequence == NO_SEQUENCE:
        return NO_SEQUENCE
    return sequence_add(info.base_sequence, info.last_offset_delta)


cdef inline ProducerBatch* batch_at(Producer* p, int i) noexcept nogil:
    return &p.batches[(p.first + i) % PRODUCER_BATCHES]


cdef ProducerBatch* find_duplicate(Producer* p, const BatchInfo* info) noexcept nogil:
    cdef ProducerBatch* b
    cdef int i
    if p.epoch != info.producer_epoch:
        return NULL
    for i in range(p.count):
        b = batch_at(p, i)
        if b.last_sequence == last_sequence_of(info) \
                and sequence_subtract(b.last_sequence, b.offset_delta) == info.base_sequence:
            return b
    return NULL


cdef int check_sequence(Producer* p, const BatchInfo* info) noexcept nogil:
    cdef int32_t last = NO_SEQUENCE
    if p.epoch == NO_PRODUCER_EPOCH:
        return PRODUCER_OK
    if p.epoch != info.producer_epoch:
        return PRODUCER_OK if info.base_sequence == 0 else PRODUCER_OUT_OF_ORDER
    if p.count > 0:
        last = batch_at(p, p.count - 1).last_sequence
    if info.base_sequence == <int64_t> last + 1:
        return PRODUCER_OK
    if info.base_sequence == 0 and last == INT32_MAX:
        return PRODUCER_OK
    return PRODUCER_OUT_OF_ORDER


# ---- end markers

ctypedef struct Marker:
    int32_t coordinator_epoch
    int64_t timestamp
    bint aborted


cdef bint read_marker(const uint8_t* batch, const BatchInfo* info, Marker* out) noexcept nogil:
    """The end marker in a control batch; false when there is none (cleaned) or it is broken."""
    cdef RecordCursor cursor
    cdef Record record
    cdef int kind
    records_init(&cursor, info, batch + RECORDS_OFFSET, batch + info.length)
    if next_record(&cursor, &record) != 1:
        return False
    if record.key.n < MARKER_KEY_BYTES or record.value.n < MARKER_VALUE_BYTES:
        return False
    kind = load_i16(record.key.p + 2)
    if kind != MARKER_ABORT and kind != MARKER_COMMIT:
        return False
    out.aborted = kind == MARKER_ABORT
    out.coordinator_epoch = load_i32(record.value.p + 2)
    out.timestamp = record.timestamp
    return True


# ---- check

cdef bint marker_is_late(const Producer* p, const BatchInfo* info, int version) noexcept nogil:
    """From version 2 on each transaction ends in a new epoch; the same one again is a marker that
    is written a second time (KAFKA-19999), where it ends nothing. An epoch at its limit cannot be
    a new one: it is let through, so that such a producer can be brought to an end."""
    if version < 2 or info.producer_epoch != p.epoch:
        return info.producer_epoch < p.epoch
    return p.txn.first_offset >= 0 and p.epoch != INT16_MAX


cdef int check_marker(Producer* p, const uint8_t* batch, const BatchInfo* info,
                      int version) noexcept nogil:
    cdef Marker marker
    if not read_marker(batch, info, &marker):
        return PRODUCER_BAD_MARKER
    if marker_is_late(p, info, version):
        return PRODUCER_FENCED
    if marker.coordinator_epoch < p.coordinator_epoch:
        return PRODUCER_COORDINATOR_FENCED
    return PRODUCER_OK


cdef bint producers_aborts(const Producers* ps, const uint8_t* batch,
                           const BatchInfo* info) noexcept nogil:
    cdef Marker marker
    cdef Producer* p = producers_find(ps, info.producer_id)
    return p != NULL and p.txn.first_offset >= 0 and read_marker(batch, info, &marker) \
        and marker.aborted


cdef inline bint in_txn(const Producer* p, int32_t epoch) noexcept nogil:
    return p.txn.first_offset >= 0 and p.epoch == epoch


cdef int producers_verify(Producers* ps, int64_t id, int16_t epoch, int32_t sequence, bint bumps,
                          int64_t now_ms, int64_t* guard) noexcept nogil:
    cdef Producer* p = producers_take(ps, id)
    cdef Verification* v
    guard[0] = 0
    if p == NULL:
        return PRODUCER_NO_MEMORY
    if epoch < p.epoch:
        return PRODUCER_FENCED
    if in_txn(p, epoch):
        return PRODUCER_OK
    v = p.verification
    if v == NULL:
        v = p.verification = <Verification*> calloc(1, sizeof(Verification))
        if v == NULL:
            return PRODUCER_NO_MEMORY
        ps.guards += 1
        v.guard = ps.guards
        v.since_ms = now_ms
        v.lowest_sequence = sequence
        v.epoch = epoch
        v.bumps = bumps
    elif epoch > v.epoch or (epoch == v.epoch and sequence < v.lowest_sequence):
        v.lowest_sequence = sequence
        v.epoch = epoch
    guard[0] = v.guard
    return PRODUCER_OK


cdef bint opens_unverified(const Producer* p, const Terms* terms,
                           const BatchInfo* info) noexcept nogil:
    if not info.transactional or terms.guard == NOT_GUARDED or in_txn(p, info.producer_epoch):
        return False
    return p.verification == NULL or p.verification.guard != terms.guard


cdef bint is_too_early(const Producer* p, const BatchInfo* info) noexcept nogil:
    """A batch before it is still being verified, or is to be the first of its epoch."""
    cdef const Verification* v = p.verification
    if v == NULL:
        return False
    return (v.bumps and info.base_sequence != 0 and p.count == 0) \
        or info.base_sequence > v.lowest_sequence


cdef int check_client(Producer* p, const Terms* terms, const BatchInfo* info,
                      ProducerBatch* duplicate) noexcept nogil:
    cdef ProducerBatch* before = find_duplicate(p, info)
    if before != NULL:
        duplicate[0] = before[0]
        return PRODUCER_DUPLICATE
    if info.producer_epoch < p.epoch:
        return PRODUCER_FENCED
    if opens_unverified(p, terms, info):
        return PRODUCER_TXN_STATE
    if is_too_early(p, info):
        return PRODUCER_OUT_OF_ORDER
    return check_sequence(p, info)


cdef int producers_check(Producers* ps, const Terms* terms, const uint8_t* batch,
                         const BatchInfo* info, ProducerBatch* duplicate) noexcept nogil:
    cdef int verdict
    cdef Producer* p = producers_take(ps, info.producer_id)
    if p == NULL or (info.transactional and not txns_reserve(&ps.txns)):
        return PRODUCER_NO_MEMORY
    if terms.origin == ORIGIN_REPLAY:
        return PRODUCER_OK
    if info.control:
        return check_marker(p, batch, info, terms.transaction_version)
    if terms.origin == ORIGIN_CLIENT:
        verdict = check_client(p, terms, info, duplicate)
        if verdict != PRODUCER_OK:
            return verdict
    elif info.producer_epoch < p.epoch:
        return PRODUCER_FENCED
    if p.txn.first_offset >= 0 and not info.transactional:
        return PRODUCER_TXN_STATE
    return PRODUCER_OK


# ---- transactions

cdef bint producers_link_txns(Producers* ps) noexcept nogil:
    cdef OngoingTxn** ongoing
    cdef uint32_t count = 0
    cdef int32_t i
    ongoing = <OngoingTxn**> malloc((ps.count + 1) * sizeof(OngoingTxn*))
    if ongoing == NULL:
        return False
    for i in range(ps.capacity):
        if ps.slots[i] != NULL and ps.slots[i].txn.first_offset >= 0:
            ongoing[count] = &ps.slots[i].txn
            count += 1
    txns_take(&ps.txns, ongoing, count)
    free(ongoing)
    return True


# ---- apply

cdef void set_epoch(Producer* p, int16_t epoch) noexcept nogil:
    if p.epoch != epoch:
        p.first = 0
        p.count = 0
        p.epoch = epoch


cdef void apply_data(Producers* ps, Producer* p, const BatchInfo* info,
                     int64_t base_offset) noexcept nogil:
    cdef ProducerBatch* b
    set_epoch(p, info.producer_epoch)
    if p.count == PRODUCER_BATCHES:
        p.first = (p.first + 1) % PRODUCER_BATCHES
        p.count -= 1
    b = batch_at(p, p.count)
    p.count += 1
    b.last_offset = base_offset + info.last_offset_delta
    b.timestamp = info.max_timestamp
    b.last_sequence = last_sequence_of(info)
    b.offset_delta = info.last_offset_delta
    p.last_timestamp = info.max_timestamp
    if info.transactional and p.txn.first_offset < 0:
        txns_begin(&ps.txns, &p.txn, base_offset)


cdef void verified(Producer* p, const BatchInfo* info) noexcept nogil:
    """A transaction is open or has ended: who verifies now begins anew. But not for the marker of
    the epoch that the next transaction is being verified in."""
    cdef Verification* v = p.verification
    if v == NULL or (v.bumps and info.control and info.producer_epoch == v.epoch):
        return
    free(v)
    p.verification = NULL


cdef int producers_apply(Producers* ps, const uint8_t* batch, const BatchInfo* info,
                         int64_t base_offset, EndedTxn* ended) noexcept nogil:
    cdef Marker marker
    cdef Producer* p = producers_take(ps, info.producer_id)
    ended.first_offset = -1
    if p == NULL:
        return PRODUCER_NO_MEMORY
    if info.transactional:
        verified(p, info)
    if not info.control:
        apply_data(ps, p, info, base_offset)
        return PRODUCER_OK
    if not read_marker(batch, info, &marker):
        return PRODUCER_OK
    ended.producer_id = p.id
    ended.last_offset = base_offset
    ended.aborted = marker.aborted
    set_epoch(p, info.producer_epoch)
    p.coordinator_epoch = marker.coordinator_epoch
    p.last_timestamp = marker.timestamp
    if p.txn.first_offset >= 0:
        txns_finish(&ps.txns, &p.txn, ended)
    return PRODUCER_OK
