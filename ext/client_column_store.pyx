"""Records laid out as Arrow's columns (see client_column_store.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_add_i32, atomic_exchange_ptr
from kbroker.ext.batch cimport BATCH_BAD_RECORD, BATCH_NO_MEMORY
from kbroker.ext.client_stream cimport stream_record
from kbroker.ext.debug cimport OBJECT_CLIENT_COLUMNS, object_born, object_died
from kbroker.ext.record cimport Header, Record, next_header
from kbroker.ext.wire cimport unlikely


cdef enum:
    ROWS_MIN = 256
    # Stores that were let go and are filled again: the first touch of fresh pages costs more than
    # all the rest. Two, because a user's loop makes the next before it drops the last.
    CACHED_STORES = 2
    CACHED_BYTES_MAX = 16 << 20

cdef void* cached[<int> CACHED_STORES]      # atomic


cdef bint larger(void** p, int64_t bytes) noexcept nogil:
    cdef void* moved = realloc(p[0], bytes)
    if moved == NULL:
        return False
    p[0] = moved
    return True


# ---- one binary column

cdef bint binary_reserve(Binary* b, int64_t elements, int64_t bytes) noexcept nogil:
    """Room for so many more; the first end is written."""
    cdef int64_t room
    if b.count + elements > b.room or b.ends == NULL:
        room = max(b.count + elements, 2 * b.room)
        if not larger(<void**> &b.ends, (room + 1) * sizeof(int32_t)):
            return False
        if b.validity != NULL and not larger(<void**> &b.validity, (room + 7) // 8):
            return False
        b.room = room
    b.ends[b.count] = <int32_t> b.n
    if b.n + bytes > b.bytes_room or b.data == NULL:
        room = max(b.n + bytes + 1, 2 * b.bytes_room)
        if not larger(<void**> &b.data, room):
            return False
        b.bytes_room = room
    return True


cdef bint binary_first_null(Binary* b) noexcept nogil:
    b.validity = <uint8_t*> malloc((b.room + 7) // 8)
    if b.validity == NULL:
        return False
    memset(b.validity, 0xFF, (b.room + 7) // 8)
    return True


cdef inline bint binary_set(Binary* b, const uint8_t* p, int32_t n) noexcept nogil:
    """There is room. False: no memory for the bitmap."""
    cdef uint8_t bit = <uint8_t> (1 << (b.count & 7))
    if unlikely(n < 0):
        if b.validity == NULL and not binary_first_null(b):
            return False
        b.validity[b.count >> 3] &= ~bit
        b.nulls += 1
    else:
        memcpy(b.data + b.n, p, n)
        b.n += n
        if b.validity != NULL:
            b.validity[b.count >> 3] |= bit
    b.count += 1
    b.ends[b.count] = <int32_t> b.n
    return True


cdef bint binary_put(Binary* b, const uint8_t* p, int32_t n) noexcept nogil:
    if b.n + n > STORE_BYTES_MAX or not binary_reserve(b, 1, max(n, 0)):
        return False
    return binary_set(b, p, n)


cdef void binary_empty(Binary* b) noexcept nogil:
    free(b.validity)
    b.validity = NULL
    b.count = b.n = b.nulls = 0


cdef void binary_free(Binary* b) noexcept nogil:
    free(b.ends)
    free(b.data)
    free(b.validity)


# ---- the store

cdef Store* store_new() noexcept nogil:
    cdef Store* store = NULL
    cdef int i
    for i in range(CACHED_STORES):
        if store == NULL:
            store = <Store*> atomic_exchange_ptr(&cached[i], NULL)
    if store == NULL:
        store = <Store*> calloc(1, sizeof(Store))
    if store != NULL:
        store.refs = 1
        object_born(OBJECT_CLIENT_COLUMNS)
    return store


cdef Store* store_ref(Store* store) noexcept nogil:
    atomic_add_i32(&store.refs, 1)
    return store


cdef void store_free(Store* store) noexcept nogil:
    if store == NULL:
        return
    free(store.offsets)
    free(store.timestamps)
    free(store.partitions)
    free(store.topics)
    free(store.header_ends)
    binary_free(&store.key)
    binary_free(&store.value)
    binary_free(&store.header_key)
    binary_free(&store.header_value)
    binary_free(&store.names)
    free(store)


cdef void store_unref(Store* store) noexcept nogil:
    cdef int i
    if store == NULL or atomic_add_i32(&store.refs, -1) > 0:
        return
    object_died(OBJECT_CLIENT_COLUMNS)
    if store_bytes(store) <= CACHED_BYTES_MAX:
        store.rows = 0
        free(store.header_ends)
        store.header_ends = NULL
        binary_empty(&store.key)
        binary_empty(&store.value)
        binary_empty(&store.header_key)
        binary_empty(&store.header_value)
        binary_empty(&store.names)
        for i in range(CACHED_STORES):
            store = <Store*> atomic_exchange_ptr(&cached[i], store)
            if store == NULL:
                return
    store_free(store)


cdef void store_forget_cached() noexcept nogil:
    cdef int i
    for i in range(CACHED_STORES):
        store_free(<Store*> atomic_exchange_ptr(&cached[i], NULL))


cdef int64_t store_bytes(const Store* store) noexcept nogil:
    return (
        24 * store.room + store.key.bytes_room + store.value.bytes_room
        + store.header_key.bytes_room + store.header_value.bytes_room
    )


cdef bint store_reserve(Store* store, int64_t rows, int64_t bytes) noexcept nogil:
    cdef int64_t room
    if store.rows + rows > store.room:
        room = max(max(store.rows + rows, 2 * store.room), <int64_t> ROWS_MIN)
        if not (
            larger(<void**> &store.offsets, room * sizeof(int64_t))
            and larger(<void**> &store.timestamps, room * sizeof(int64_t))
            and larger(<void**> &store.partitions, room * sizeof(int32_t))
            and larger(<void**> &store.topics, room * sizeof(int32_t))
        ):
            return False
        if store.header_ends != NULL and not larger(
            <void**> &store.header_ends, (room + 1) * sizeof(int32_t)
        ):
            return False
        store.room = room
    return binary_reserve(&store.key, rows, bytes) and binary_reserve(&store.value, rows, bytes)


cdef int take_headers(Store* store, const Record* r, int64_t row) noexcept nogil:
    """Of the row that comes next: 1, or an error."""
    cdef const uint8_t* p = r.headers
    cdef Header header
    if store.header_ends == NULL:
        store.header_ends = <int32_t*> malloc((store.room + 1) * sizeof(int32_t))
        if store.header_ends == NULL:
            return BATCH_NO_MEMORY
        memset(store.header_ends, 0, (row + 1) * sizeof(int32_t))
    for _ in range(r.header_count):
        p = next_header(p, r.end, &header)
        if p == NULL:
            return BATCH_BAD_RECORD
        if not binary_put(&store.header_key, header.key.p, header.key.n):
            return BATCH_NO_MEMORY
        if not binary_put(&store.header_value, header.value.p, header.value.n):
            return BATCH_NO_MEMORY
    return 1


cdef int store_take(
    Store* store, Stream* s, int32_t topic, int32_t partition, int64_t most
) noexcept nogil:
    cdef Record r
    cdef const uint8_t* at
    cdef int64_t row = store.rows
    cdef int64_t bytes = s.cursor.end - s.cursor.p
    cdef int code = 1
    if row and (
        store.value.n + bytes > STORE_BYTES_MAX or store.key.n + bytes > STORE_BYTES_MAX
        or store.header_value.n + bytes > STORE_BYTES_MAX
        or store.header_key.n + bytes > STORE_BYTES_MAX
    ):
        return STORE_FULL
    # A record takes at least seven bytes, whatever the header of its batch counts.
    if not store_reserve(store, min(min(most - row, s.cursor.left), bytes // 7 + 1), bytes):
        return BATCH_NO_MEMORY
    while row < most:
        at = s.cursor.p
        code = stream_record(s, &r)
        if code != 1:
            break
        if unlikely(r.header_count > 0):
            code = take_headers(store, &r, row)
            if code != 1:               # to be met again
                s.cursor.p = at
                s.cursor.left += 1
                s.position = r.offset
                break
        store.offsets[row] = r.offset
        store.timestamps[row] = r.timestamp
        store.partitions[row] = partition
        store.topics[row] = topic
        if not (binary_set(&store.key, r.key.p, r.key.n)
                and binary_set(&store.value, r.value.p, r.value.n)):
            code = BATCH_NO_MEMORY
            break
        row += 1
        if store.header_ends != NULL:
            store.header_ends[row] = <int32_t> store.header_key.count
    store.rows = row
    return code
