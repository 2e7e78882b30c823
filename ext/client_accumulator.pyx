"""What the caller's thread fills and the sender drains (see client_accumulator.pxd)."""
from libc.stdint cimport uint32_t
from libc.string cimport memset

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_fence, atomic_load_i32, atomic_load_i64, atomic_load_relaxed_i32,
    atomic_store_i32, atomic_store_i64, atomic_store_ptr, atomic_tally_i32,
)
from kbroker.ext.batch cimport BATCH_OK, RECORDS_OFFSET
from kbroker.ext.batch_build cimport builder_append_within
from kbroker.ext.client_batch cimport (
    OUTCOME_PENDING, SUM_BYTES, batch_close, batch_new, batch_ref, batch_sum, batch_unref,
)
from kbroker.ext.client_memory cimport (
    MEMORY_NONE, MEMORY_OK, memory_close, memory_destroy, memory_give, memory_take,
)
from kbroker.ext.client_partition cimport (
    PARTITION_BY_ROUND_ROBIN, PARTITION_BY_STICKY, partition_of_key,
)
from kbroker.ext.client_topic cimport chance_of, sticky_moves, sticky_of, topic_free, topic_new
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.compression cimport CODEC_NONE
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_destroy, pthread_cond_timedwait, pthread_mutex_destroy,
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.record cimport RECORD_OVERHEAD_MAX
from kbroker.ext.sockets cimport cond_init_monotonic

cdef enum:
    HEADER_OVERHEAD_MAX = 10        # the two lengths of a record's header
    EXPANSION_MAX = 16              # plain bytes in a batch, in batch.size
    RATIO_MARGIN_MILLI = 1050       # as Java's COMPRESSION_RATE_ESTIMATION_FACTOR

cdef enum:                          # append_here
    PIECE_USED = 1
    PIECE_WANTED = 2


cdef void accumulator_init(Accumulator* a, const Settings* settings) noexcept nogil:
    memset(a, 0, sizeof(Accumulator))
    a.settings = settings[0]
    pthread_mutex_init(&a.lock, NULL)
    cond_init_monotonic(&a.emptied)
    a.chance = <uint64_t> monotonic_ns() | 1


cdef void accumulator_destroy(Accumulator* a) noexcept nogil:
    cdef Topic* t = a.topics
    while t != NULL:
        a.topics = t.next
        topic_free(t)
        t = a.topics
    memory_destroy(&a.pool)
    pthread_cond_destroy(&a.emptied)
    pthread_mutex_destroy(&a.lock)


cdef int32_t accumulator_partition(
    Accumulator* a, Topic* t, const uint8_t* key, int32_t n
) noexcept nogil:
    cdef int32_t found
    if a.settings.way == PARTITION_BY_STICKY:
        if n < 0 or a.settings.ignore_keys:
            return -1
        return partition_of_key(PARTITION_BY_STICKY, key, n, t.count)
    if a.settings.way == PARTITION_BY_ROUND_ROBIN:
        pthread_mutex_lock(&t.lock)
        found = <int32_t> (t.turn % <uint32_t> t.count)
        t.turn += 1
        pthread_mutex_unlock(&t.lock)
        return found
    found = partition_of_key(a.settings.way, key, n, t.count)
    if found < 0:
        found = <int32_t> (chance_of(&a.chance) % <uint32_t> t.count)
    return found


cdef Topic* accumulator_topic(Accumulator* a, const uint8_t* name, int32_t n) noexcept nogil:
    cdef Topic* t = topic_new(name, n)
    if t != NULL:
        t.used_ns = monotonic_ns()
        pthread_mutex_lock(&a.lock)
        t.next = a.topics
        a.topics = t
        pthread_mutex_unlock(&a.lock)
    return t


# ---- append

cdef int64_t piece_bytes(Accumulator* a, Topic* t) noexcept nogil:
    cdef int64_t ratio
    if a.settings.codec == CODEC_NONE:
        return a.settings.batch_bytes
    ratio = <int64_t> atomic_load_relaxed_i32(&t.ratio_milli) * RATIO_MARGIN_MILLI // 1000
    if ratio >= 1000:
        return a.settings.batch_bytes
    return min(a.settings.batch_bytes * 1000 // max(ratio, <int64_t> 1),
               a.settings.batch_bytes * EXPANSION_MAX)


cdef int64_t record_bytes_max(const Rec* rec) noexcept nogil:
    cdef int64_t size = RECORD_OVERHEAD_MAX
    cdef int32_t i
    size += max(rec.key.n, 0) + <int64_t> max(rec.value.n, 0)
    for i in range(rec.header_count):
        size += HEADER_OVERHEAD_MAX + rec.headers[i].key.n
        size += max(rec.headers[i].value.n, 0)
    return size


cdef inline void link_last(Part* part, ClientBatch* b) noexcept nogil:
    b.next = NULL
    if part.tail != NULL:
        part.tail.next = b
    else:
        part.head = b
    part.tail = b
    atomic_tally_i32(&part.length, 1)


cdef void tell_sender(Accumulator* a, Part* part, bint fresh, bint full) noexcept nogil:
    if fresh:
        pthread_mutex_lock(&a.lock)
        part.next_fresh = a.fresh
        atomic_store_ptr(<void**> &a.fresh, part)
        pthread_mutex_unlock(&a.lock)
    accumulator_kick(a, full)


cdef void accumulator_kick(Accumulator* a, bint now) noexcept nogil:
    """Store the wish, then look whether the sender sleeps; it does both the other way round."""
    cdef int64_t until
    atomic_store_i32(&a.kicked, 1)
    atomic_fence()
    until = atomic_load_i64(&a.sleeps_until)
    if until != 0 and (now or until > monotonic_ns() + a.settings.linger_ns):
        a.wake(a.wake_owner)


cdef inline int append_locked(
    Accumulator* a, Part* part, ClientBatch* b, const Rec* rec, bint sticky,
    ClientBatch** out, int32_t* index,
) noexcept nogil:
    cdef size_t before = b.builder.buffer.n if b.builder.count else 0
    cdef int code = builder_append_within(
        &b.builder, rec.timestamp, rec.key, rec.value, rec.headers, rec.header_count
    )
    if code != BATCH_OK:
        return code
    out[0] = b
    index[0] = b.builder.count - 1
    batch_ref(b)
    if b.builder.buffer.n - b.summed >= SUM_BYTES and a.settings.codec == CODEC_NONE:
        batch_sum(b)
    if sticky:
        part.topic.produced += <int64_t> (b.builder.buffer.n - before)
    return BATCH_OK


cdef int accumulator_append(
    Accumulator* a, Topic* t, int32_t partition, const Rec* rec, int64_t deadline_ns,
    ClientBatch** out, int32_t* index,
) noexcept nogil:
    cdef bint sticky = partition < 0
    cdef int32_t at = partition
    cdef Part* part
    cdef ClientBatch* b
    if sticky:
        at = t.sticky
        if at < 0:
            at = sticky_of(t, &a.chance)
        elif t.produced >= 2 * a.settings.batch_bytes and sticky_moves(
            t, at, 2 * a.settings.batch_bytes, &a.chance
        ):
            at = t.sticky
    part = t.parts[at]
    pthread_mutex_lock(&part.lock)
    b = part.tail
    if b != NULL and not b.closed and not atomic_load_relaxed_i32(&a.closed) and append_locked(
        a, part, b, rec, sticky, out, index
    ) == BATCH_OK:
        pthread_mutex_unlock(&part.lock)
        return APPEND_OK
    pthread_mutex_unlock(&part.lock)
    return append_new(a, t, at, sticky, rec, deadline_ns, out, index)


cdef int32_t accumulator_append_run(
    Accumulator* a, Topic* t, int32_t partition, const Rec* recs, int32_t n, int64_t deadline_ns,
    ClientBatch** out, int32_t* index,
) noexcept nogil:
    cdef int32_t done = 1
    cdef ClientBatch* b
    cdef size_t before
    cdef Part* part
    cdef int code = accumulator_append(a, t, partition, recs, deadline_ns, out, index)
    if code != APPEND_OK:
        return code
    b = out[0]
    part = t.parts[b.partition]
    pthread_mutex_lock(&part.lock)
    if not b.closed and b.builder.count == index[0] + 1 and not atomic_load_relaxed_i32(&a.closed):
        before = b.builder.buffer.n
        while done < n and builder_append_within(
            &b.builder, recs[done].timestamp, recs[done].key, recs[done].value,
            recs[done].headers, recs[done].header_count,
        ) == BATCH_OK:
            done += 1
            if b.builder.buffer.n - b.summed >= SUM_BYTES and a.settings.codec == CODEC_NONE:
                batch_sum(b)
            if partition < 0 and t.produced + <int64_t> (b.builder.buffer.n - before) \
                    >= 2 * a.settings.batch_bytes:
                break
        if partition < 0:
            t.produced += <int64_t> (b.builder.buffer.n - before)
    pthread_mutex_unlock(&part.lock)
    return done


cdef int append_new(
    Accumulator* a, Topic* t, int32_t at, bint sticky, const Rec* rec, int64_t deadline_ns,
    ClientBatch** out, int32_t* index,
) noexcept nogil:
    """A new batch is needed, unless another thread makes it meanwhile."""
    cdef int64_t size = max(piece_bytes(a, t), RECORDS_OFFSET + record_bytes_max(rec))
    cdef int64_t need = RECORDS_OFFSET + record_bytes_max(rec)
    cdef uint8_t* piece = NULL
    cdef int code
    if need > a.settings.request_bytes_max or need > a.pool.bytes_max:
        return APPEND_TOO_LARGE
    if size > a.pool.bytes_max:
        size = need
    while True:
        if sticky and sticky_moves(t, at, a.settings.batch_bytes, &a.chance):
            at = t.sticky
        code = append_here(a, t.parts[at], rec, sticky, piece, size, out, index)
        if code <= APPEND_OK:
            break
        if code == PIECE_USED:
            return APPEND_OK
        if piece == NULL:
            code = memory_take(&a.pool, size, deadline_ns, &piece)
            if code != MEMORY_OK:
                return code
    if piece != NULL:
        memory_give(&a.pool, piece, size)
    return code


cdef int append_here(
    Accumulator* a, Part* part, const Rec* rec, bint sticky, uint8_t* piece, int64_t size,
    ClientBatch** out, int32_t* index,
) noexcept nogil:
    """APPEND_OK in the open batch, PIECE_USED in a new one, PIECE_WANTED, or an error."""
    cdef bint fresh = False
    cdef bint full = False
    cdef ClientBatch* b
    cdef int code = APPEND_OK
    pthread_mutex_lock(&part.lock)
    if atomic_load_relaxed_i32(&a.closed):
        pthread_mutex_unlock(&part.lock)
        return APPEND_CLOSED
    b = part.tail
    if b != NULL and not b.closed:
        if append_locked(a, part, b, rec, sticky, out, index) == BATCH_OK:
            pthread_mutex_unlock(&part.lock)
            return APPEND_OK
        batch_close(b)
        full = True
    if piece == NULL:
        code = PIECE_WANTED
    else:
        b = batch_new(&a.pool, piece, size, part.index, monotonic_ns())
        if b == NULL:
            code = MEMORY_NONE
        elif append_locked(a, part, b, rec, sticky, out, index) != BATCH_OK:
            b.builder.buffer.p = NULL       # the caller has the piece
            batch_unref(b)
            code = APPEND_TOO_LARGE
        else:
            b.part = part
            part.topic.used_ns = b.created_ns
            full = full or part.head != NULL
            link_last(part, b)
            accumulator_track(a, b)
            fresh = not part.listed
            part.listed = True
            code = PIECE_USED
    pthread_mutex_unlock(&part.lock)
    if fresh or full or code == PIECE_USED:
        tell_sender(a, part, fresh, full)
    return code


# ---- all batches

cdef void accumulator_track(Accumulator* a, ClientBatch* b) noexcept nogil:
    pthread_mutex_lock(&a.lock)
    a.serial += 1
    b.serial = a.serial
    b.all_next = NULL
    b.all_before = a.all_tail
    if a.all_tail != NULL:
        a.all_tail.all_next = b
    else:
        a.all_head = b
    a.all_tail = b
    pthread_mutex_unlock(&a.lock)


cdef int64_t accumulator_pending(Accumulator* a) noexcept nogil:
    """Those that have an outcome leave the list a moment later."""
    cdef ClientBatch* b
    cdef int64_t count = 0
    pthread_mutex_lock(&a.lock)
    b = a.all_head
    while b != NULL:
        count += atomic_load_i32(&b.state) == OUTCOME_PENDING
        b = b.all_next
    pthread_mutex_unlock(&a.lock)
    return count


cdef void accumulator_forget(Accumulator* a, ClientBatch* b) noexcept nogil:
    pthread_mutex_lock(&a.lock)
    if b.serial > 0:
        if b.all_before != NULL:
            b.all_before.all_next = b.all_next
        else:
            a.all_head = b.all_next
        if b.all_next != NULL:
            b.all_next.all_before = b.all_before
        else:
            a.all_tail = b.all_before
        b.serial = 0
        if atomic_load_i32(&a.waiting) > 0:
            pthread_cond_broadcast(&a.emptied)
    pthread_mutex_unlock(&a.lock)


cdef void accumulator_close(Accumulator* a) noexcept nogil:
    cdef Topic* t
    cdef Part** parts
    cdef int32_t i, count
    atomic_store_i32(&a.closed, 1)
    memory_close(&a.pool)
    pthread_mutex_lock(&a.lock)
    t = a.topics
    pthread_mutex_unlock(&a.lock)
    while t != NULL:
        pthread_mutex_lock(&t.lock)
        parts = t.parts
        count = t.count
        pthread_mutex_unlock(&t.lock)
        # Who looks at `closed` does it under this lock: one who had not seen it is done then.
        for i in range(count):
            pthread_mutex_lock(&parts[i].lock)
            pthread_mutex_unlock(&parts[i].lock)
        t = t.next
    accumulator_kick(a, True)


cdef int64_t accumulator_flush(Accumulator* a) noexcept nogil:
    cdef int64_t serial
    pthread_mutex_lock(&a.lock)
    serial = a.serial
    pthread_mutex_unlock(&a.lock)
    if atomic_load_i64(&a.flushed_serial) < serial:
        atomic_store_i64(&a.flushed_serial, serial)
    accumulator_kick(a, True)
    return serial


cdef bint accumulator_flushed(
    Accumulator* a, int64_t serial, int64_t deadline_ns
) noexcept nogil:
    cdef timespec_t until = timespec_of(deadline_ns)
    cdef bint done
    pthread_mutex_lock(&a.lock)
    atomic_add_i32(&a.waiting, 1)
    while a.all_head != NULL and a.all_head.serial <= serial and monotonic_ns() < deadline_ns:
        pthread_cond_timedwait(&a.emptied, &a.lock, &until)
    done = a.all_head == NULL or a.all_head.serial > serial
    atomic_add_i32(&a.waiting, -1)
    pthread_mutex_unlock(&a.lock)
    return done
