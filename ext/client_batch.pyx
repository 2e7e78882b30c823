"""A batch of the producer (see client_batch.pxd)."""
import os

from libc.stdint cimport uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport (
    atomic_add_i32, atomic_cas_i32, atomic_exchange_i32, atomic_fence, atomic_load_i32,
    atomic_store_i32,
)
from kbroker.ext.batch cimport (
    BATCH_NO_MEMORY, BATCH_OK, RECORDS_OFFSET, next_header,
)
from kbroker.ext.batch_build cimport (
    batch_code, builder_append, builder_borrow, builder_free, builder_init,
)
from kbroker.ext.clock cimport monotonic_ns, timespec_of
from kbroker.ext.client_memory cimport memory_ahead, memory_give, memory_trade
from kbroker.ext.compression cimport (
    CODEC_NONE, CODEC_OK, Buffer, buffer_free, buffer_reserve, codec_compress, codec_decompress,
)
from kbroker.ext.crc32c cimport crc32c_extend
from kbroker.ext.debug cimport OBJECT_CLIENT_BATCH, debug_assert, object_born, object_died
from kbroker.ext.posix cimport (
    pthread_cond_broadcast, pthread_cond_t, pthread_cond_timedwait, pthread_mutex_init,
    pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock, timespec_t,
)
from kbroker.ext.record cimport Record, read_record
from kbroker.ext.sockets cimport cond_init_monotonic

cdef enum:
    STRIPES = 16                    # places where threads wait, by the batch's address
    PLAIN_BYTES_MAX = 1 << 30       # of a batch of our own, compressed by us

cdef struct Stripe:
    pthread_mutex_t lock
    pthread_cond_t moved
    int32_t waiting                 # atomic

cdef Stripe stripes[STRIPES]
cdef int32_t forks = 0


cdef void init_stripes() noexcept nogil:
    cdef int i
    memset(stripes, 0, sizeof(stripes))
    for i in range(STRIPES):
        pthread_mutex_init(&stripes[i].lock, NULL)
        cond_init_monotonic(&stripes[i].moved)


cdef int32_t fork_generation() noexcept nogil:
    return forks


def after_fork() -> None:
    """In the child: nobody holds or awaits our locks there."""
    global forks
    forks += 1
    init_stripes()


init_stripes()
os.register_at_fork(after_in_child=after_fork)


cdef ClientBatch* batch_new(
    MemoryPool* pool, uint8_t* piece, int64_t piece_bytes, int32_t partition, int64_t now_ns
) noexcept nogil:
    cdef ClientBatch* b = <ClientBatch*> calloc(1, sizeof(ClientBatch))
    if b == NULL:
        return NULL
    object_born(OBJECT_CLIENT_BATCH)
    if piece != NULL:
        builder_borrow(&b.builder, piece, piece_bytes)
    b.pool = pool
    b.piece_bytes = piece_bytes
    b.summed = RECORDS_OFFSET
    b.refs = 1
    b.partition = partition
    b.generation = forks
    b.created_ns = now_ns
    b.base_offset = b.append_time = -1
    b.producer_id = -1
    b.producer_epoch = -1
    b.base_sequence = -1
    b.attempt_epoch = -1
    return b


cdef void batch_ref(ClientBatch* b) noexcept nogil:
    atomic_add_i32(&b.refs, 1)


cdef void batch_unref(ClientBatch* b) noexcept nogil:
    cdef int32_t i
    if atomic_add_i32(&b.refs, -1) > 0:
        return
    debug_assert(b.callbacks == NULL, "a batch goes with its callbacks")
    batch_release(b)
    for i in range(b.faults_count):
        free(b.faults[i].message)
    for i in range(b.children_count):
        batch_unref(b.children[i])
    free(b.faults)
    free(b.message)
    free(b.children)
    free(b)
    object_died(OBJECT_CLIENT_BATCH)


cdef ClientBatch* batch_root(ClientBatch* b) noexcept nogil:
    while b.parent != NULL:
        b = b.parent
    return b


cdef void batch_close(ClientBatch* b) noexcept nogil:
    if not b.closed and b.pool != NULL:
        b.ahead = b.piece_bytes
        memory_ahead(b.pool, b.ahead)
    b.closed = True


cdef void batch_release(ClientBatch* b) noexcept nogil:
    if b.builder.buffer.p == NULL:
        return
    if b.pool == NULL:
        builder_free(&b.builder)
    elif b.packed:
        builder_free(&b.builder)
        memory_trade(b.pool, b.piece_bytes, 0)
    else:
        memory_give(b.pool, b.builder.buffer.p, b.piece_bytes)
    if b.ahead > 0:
        memory_ahead(b.pool, -b.ahead)
        b.ahead = 0
    b.builder.buffer.p = NULL
    b.piece_bytes = 0


cdef void batch_sum(ClientBatch* b) noexcept nogil:
    cdef size_t n = b.builder.buffer.n
    b.crc = crc32c_extend(b.crc, b.builder.buffer.p + b.summed, n - b.summed)
    b.summed = n


cdef int batch_pack(ClientBatch* b, int codec, int level) noexcept nogil:
    cdef Buffer packed
    cdef int code
    if codec == CODEC_NONE:
        return BATCH_OK
    memset(&packed, 0, sizeof(packed))
    if buffer_reserve(&packed, RECORDS_OFFSET) != CODEC_OK:
        return BATCH_NO_MEMORY
    packed.n = RECORDS_OFFSET
    code = codec_compress(
        codec, level, b.builder.buffer.p + RECORDS_OFFSET, b.builder.buffer.n - RECORDS_OFFSET,
        &packed,
    )
    if code != CODEC_OK:
        buffer_free(&packed)
        return batch_code(code)
    if b.pool == NULL:
        builder_free(&b.builder)
    else:
        memory_give(b.pool, b.builder.buffer.p, b.piece_bytes)
        memory_trade(b.pool, 0, packed.n)
        b.piece_bytes = packed.n
    b.builder.buffer = packed
    b.packed = True
    return BATCH_OK


# ---- split

cdef int copy_record(
    ClientBatch* into, const Record* record, Header* room, int64_t timestamp
) noexcept nogil:
    cdef const uint8_t* p = record.headers
    cdef int32_t i
    for i in range(record.header_count):
        p = next_header(p, record.end, &room[i])
        if p == NULL:
            return -1
    return builder_append(
        &into.builder, timestamp, record.key, record.value, room, record.header_count
    )


cdef ClientBatch* split_child(ClientBatch* b, size_t room) noexcept nogil:
    cdef ClientBatch* child = batch_new(NULL, NULL, 0, b.partition, b.created_ns)
    if child == NULL:
        return NULL
    if builder_init(&child.builder, room) != BATCH_OK:
        batch_unref(child)
        return NULL
    child.closed = True
    child.split_off = True
    child.part = b.part
    child.parent = b
    return child


cdef int split_records(
    ClientBatch* b, const uint8_t* p, const uint8_t* end, size_t bytes_max,
    ClientBatch** children, int32_t* count,
) noexcept nogil:
    cdef ClientBatch* child = NULL
    cdef Record record
    cdef Header* room
    cdef int32_t delta, _index
    cdef int code
    cdef int64_t timestamp_delta
    cdef const uint8_t* start
    for _index in range(b.builder.count):
        start = p
        if not read_record(p, end, &record, &delta, &timestamp_delta):
            return -1
        p = record.end
        if child == NULL or (child.builder.count > 0 and child.builder.buffer.n
                             + <size_t> (p - start) > bytes_max):
            child = split_child(b, bytes_max)
            if child == NULL:
                return -1
            children[count[0]] = child
            count[0] += 1
        room = <Header*> malloc(sizeof(Header) * (record.header_count + 1))
        if room == NULL:
            return -1
        code = copy_record(child, &record, room, b.builder.base_timestamp + timestamp_delta)
        free(room)
        if code != BATCH_OK:
            return -1
    return 0


cdef ClientBatch** batch_split(
    ClientBatch* b, size_t bytes_max, int32_t* count
) noexcept nogil:
    cdef ClientBatch** children = <ClientBatch**> calloc(b.builder.count, sizeof(ClientBatch*))
    cdef const uint8_t* p = b.builder.buffer.p + RECORDS_OFFSET
    cdef const uint8_t* end = b.builder.buffer.p + b.builder.buffer.n
    cdef Buffer plain
    cdef int32_t i
    cdef int code = 0
    memset(&plain, 0, sizeof(plain))
    count[0] = 0
    if children == NULL:
        return NULL
    if b.packed:
        code = codec_decompress(
            b.builder.buffer.p[22] & 7, p, <size_t> (end - p), PLAIN_BYTES_MAX, &plain
        )
        p = plain.p
        end = plain.p + plain.n
    if code == 0:
        code = split_records(b, p, end, bytes_max, children, count)
    buffer_free(&plain)
    if code != 0:
        for i in range(count[0]):
            batch_unref(children[i])
        free(children)
        return NULL
    return children


# ---- outcome

cdef inline Stripe* stripe_of(ClientBatch* b) noexcept nogil:
    return &stripes[<uint64_t> b >> 8 & STRIPES - 1]


cdef bint batch_settle(ClientBatch* b, int state) noexcept nogil:
    cdef Stripe* stripe = stripe_of(b)
    atomic_store_i32(&b.state, state)
    atomic_fence()
    if atomic_load_i32(&stripe.waiting) > 0:
        pthread_mutex_lock(&stripe.lock)
        pthread_cond_broadcast(&stripe.moved)
        pthread_mutex_unlock(&stripe.lock)
    return atomic_exchange_i32(&b.watch, WATCH_OVER) == WATCH_WANTED


cdef bint batch_wait(ClientBatch* b, int64_t deadline_ns) noexcept nogil:
    cdef Stripe* stripe = stripe_of(b)
    cdef timespec_t until = timespec_of(deadline_ns)
    atomic_add_i32(&stripe.waiting, 1)
    atomic_fence()
    pthread_mutex_lock(&stripe.lock)
    while atomic_load_i32(&b.state) == OUTCOME_PENDING and monotonic_ns() < deadline_ns:
        pthread_cond_timedwait(&stripe.moved, &stripe.lock, &until)
    pthread_mutex_unlock(&stripe.lock)
    atomic_add_i32(&stripe.waiting, -1)
    return atomic_load_i32(&b.state) != OUTCOME_PENDING


cdef bint batch_watch(ClientBatch* b) noexcept nogil:
    cdef int32_t expected = WATCH_NONE
    if atomic_cas_i32(&b.watch, &expected, WATCH_WANTED):
        batch_ref(b)
        return True
    return expected == WATCH_WANTED


cdef ClientBatch* batch_of_record(ClientBatch* b, int32_t* index) noexcept nogil:
    cdef int32_t child = 0
    while b.children_count > 0 and atomic_load_i32(&b.state) == OUTCOME_SPLIT:
        child = 0
        while child < b.children_count - 1 and index[0] >= b.children[child].builder.count:
            index[0] -= b.children[child].builder.count
            child += 1
        b = b.children[child]
    return b


cdef char* text_copy(const uint8_t* p, int32_t n) noexcept nogil:
    cdef char* copy
    if n < 0:
        return NULL
    copy = <char*> malloc(n + 1)
    if copy != NULL:
        if n:
            memcpy(copy, p, n)
        copy[n] = 0
    return copy
