"""Records laid out as columns (see client_column_store.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.atomics cimport atomic_add_i32, atomic_exchange_ptr
from kbroker.ext.batch cimport BATCH_BAD_RECORD, BATCH_NO_MEMORY
from kbroker.ext.client_counted cimport memory_make, memory_ref, memory_unref
from kbroker.ext.client_stream cimport stream_record
from kbroker.ext.debug cimport OBJECT_CLIENT_COLUMNS, object_born, object_died
from kbroker.ext.record cimport Header, Record, next_header
from kbroker.ext.wire cimport Slice, unlikely

cdef extern from * nogil:
    void __builtin_prefetch(const void* at) noexcept

cdef enum:
    ROWS_MIN = 256
    AHEAD = 8                       # records
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


# ---- headers and names

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


cdef bint binary_put(Binary* b, const uint8_t* p, int32_t n) noexcept nogil:
    cdef uint8_t bit
    if b.n + n > STORE_BYTES_MAX or not binary_reserve(b, 1, max(n, 0)):
        return False
    bit = <uint8_t> (1 << (b.count & 7))
    if n < 0:
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


cdef void binary_empty(Binary* b) noexcept nogil:
    free(b.validity)
    b.validity = NULL
    b.count = b.n = b.nulls = 0


cdef void binary_free(Binary* b) noexcept nogil:
    free(b.ends)
    free(b.data)
    free(b.validity)


# ---- keys and values

cdef bint views_reserve(Views* v, int64_t before, int64_t room) noexcept nogil:
    cdef int64_t start = before // 8 + 1 if before else 0
    if not larger(<void**> &v.views, room * sizeof(View)):
        return False
    if not larger(<void**> &v.validity, room // 8 + 1):
        return False
    memset(v.validity + start, 0xFF, room // 8 + 1 - start)
    return True


cdef void views_begin(Views* v, int64_t rows) noexcept nogil:
    """All rows so far were null, and are written now."""
    v.begun = True
    memset(v.views, 0, rows * sizeof(View))
    memset(v.validity, 0, rows >> 3)
    v.validity[rows >> 3] &= <uint8_t> (0xFF << (rows & 7))


cdef inline void views_put(
    Views* v, int64_t row, Slice s, int32_t piece, const uint8_t* base
) noexcept nogil:
    """There is room."""
    cdef View* view = v.views + row
    if s.n < 0:
        v.nulls += 1
        if v.begun:
            memset(view, 0, sizeof(View))
            v.validity[row >> 3] &= ~<uint8_t> (1 << (row & 7))
        return
    if unlikely(not v.begun):
        views_begin(v, row)
    v.n += s.n
    view.n = s.n
    if s.n > VIEW_INLINE_MAX:
        memcpy(view.prefix, s.p, sizeof(view.prefix))
        view.piece = piece
        view.at = <int32_t> (s.p - base)
    else:
        memset(view.prefix, 0, VIEW_INLINE_MAX)
        memcpy(view.prefix, s.p, s.n)


cdef void views_empty(Views* v, int64_t rows) noexcept nogil:
    if v.begun and v.nulls:
        memset(v.validity, 0xFF, (rows >> 3) + 1)
    v.begun = v.packed = False
    v.n = v.nulls = 0


cdef void views_free(Views* v) noexcept nogil:
    free(v.views)
    free(v.validity)
    free(v.ends)
    free(v.data)


cdef int64_t views_bytes(const Views* v, int64_t room) noexcept nogil:
    return room * sizeof(View) + v.ends_room + v.data_room


cdef int32_t store_value(
    const Store* store, const Views* v, int64_t i, const uint8_t** p
) noexcept nogil:
    cdef View* view = v.views + i
    if not v.begun or not v.validity[i >> 3] >> (i & 7) & 1:
        return -1
    p[0] = view.prefix
    if view.n > VIEW_INLINE_MAX:
        p[0] = store.pieces[view.piece].p + view.at
    return view.n


cdef void views_settle(Store* store, Views* v) noexcept:
    if not v.begun and store.room:
        views_begin(v, store.rows)


cdef void pack(const Store* store, const Views* v, int32_t* ends, uint8_t* data) noexcept nogil:
    cdef const uint8_t* p = NULL
    cdef int64_t i
    cdef int64_t n = 0
    cdef int32_t each
    ends[0] = 0
    for i in range(store.rows):
        each = store_value(store, v, i, &p)
        if each > 0:
            memcpy(data + n, p, each)
            n += each
        ends[i + 1] = <int32_t> n


cdef bint views_pack(Store* store, Views* v):
    cdef Views made = v[0]              # with the memory of an earlier filling
    cdef bint done = True
    if v.packed:
        return True
    v.ends = NULL                       # another thread may pack at the same time
    v.data = NULL
    v.ends_room = v.data_room = 0
    with nogil:
        if store.rows + 1 > made.ends_room:
            made.ends_room = store.rows + 1
            done = larger(<void**> &made.ends, made.ends_room * sizeof(int32_t))
        if done and v.n + 1 > made.data_room:
            made.data_room = v.n + 1
            done = larger(<void**> &made.data, made.data_room)
        if done:
            pack(store, v, made.ends, made.data)
    if v.packed or not done:
        free(made.ends)
        free(made.data)
        return v.packed
    v.ends = made.ends
    v.data = made.data
    v.ends_room = made.ends_room
    v.data_room = made.data_room
    v.packed = True
    return True


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
    free(store.timestamp_types)
    free(store.pieces)
    free(store.piece_bytes)
    free(store.header_ends)
    views_free(&store.key)
    views_free(&store.value)
    binary_free(&store.header_key)
    binary_free(&store.header_value)
    binary_free(&store.names)
    free(store)


cdef void store_empty(Store* store) noexcept nogil:
    cdef int32_t i
    views_empty(&store.key, store.rows)
    views_empty(&store.value, store.rows)
    store.rows = 0
    for i in range(store.pieces_count):
        memory_unref(store.pieces[i])
    store.pieces_count = 0
    free(store.header_ends)
    store.header_ends = NULL
    binary_empty(&store.header_key)
    binary_empty(&store.header_value)
    binary_empty(&store.names)


cdef void store_unref(Store* store) noexcept nogil:
    cdef int i
    if store == NULL or atomic_add_i32(&store.refs, -1) > 0:
        return
    object_died(OBJECT_CLIENT_COLUMNS)
    store_empty(store)
    if store_bytes(store) <= CACHED_BYTES_MAX:
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
        28 * store.room + views_bytes(&store.key, store.room)
        + views_bytes(&store.value, store.room)
        + store.header_key.bytes_room + store.header_value.bytes_room
    )


cdef bint store_reserve(Store* store, int64_t rows) noexcept nogil:
    cdef int64_t room
    if store.rows + rows <= store.room:
        return True
    room = max(max(store.rows + rows, 2 * store.room), <int64_t> ROWS_MIN)
    if not (
        larger(<void**> &store.offsets, room * sizeof(int64_t))
        and larger(<void**> &store.timestamps, room * sizeof(int64_t))
        and larger(<void**> &store.partitions, room * sizeof(int32_t))
        and larger(<void**> &store.topics, room * sizeof(int32_t))
        and larger(<void**> &store.timestamp_types, room * sizeof(int32_t))
        and views_reserve(&store.key, store.room, room)
        and views_reserve(&store.value, store.room, room)
    ):
        return False
    if store.header_ends != NULL and not larger(
        <void**> &store.header_ends, (room + 1) * sizeof(int32_t)
    ):
        return False
    store.room = room
    return True


cdef bint store_hold(Store* store, Memory* memory) noexcept nogil:
    """The last piece is `memory`."""
    cdef int32_t room
    if store.pieces_count and store.pieces[store.pieces_count - 1] == memory:
        return True
    if store.pieces_count == store.pieces_room:
        room = 2 * store.pieces_room + 8
        if not (
            larger(<void**> &store.pieces, room * sizeof(void*))
            and larger(<void**> &store.piece_bytes, room * sizeof(int64_t))
        ):
            return False
        store.pieces_room = room
    store.pieces[store.pieces_count] = memory_ref(memory)
    store.piece_bytes[store.pieces_count] = memory.n
    store.pieces_count += 1
    return True


cdef bint store_settle_headers(Store* store) noexcept:
    if store.header_ends == NULL:
        store.header_ends = <int32_t*> calloc(store.rows + 1, sizeof(int32_t))
    return store.header_ends != NULL


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
    cdef const uint8_t* base
    cdef int32_t piece
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
    if not store_reserve(store, min(min(most - row, s.cursor.left), bytes // 7 + 1)) \
            or not store_hold(store, s.memory):
        return BATCH_NO_MEMORY
    piece = store.pieces_count - 1
    base = s.memory.p
    while row < most:
        at = s.cursor.p
        code = stream_record(s, &r)
        if code != 1:
            break
        # Records of a batch tend to be of one length: what comes is under way when it is read.
        __builtin_prefetch(<const void*> (<size_t> at + AHEAD * <size_t> (r.end - at)))
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
        store.timestamp_types[row] = s.info.log_append_time
        views_put(&store.key, row, r.key, piece, base)
        views_put(&store.value, row, r.value, piece, base)
        row += 1
        if store.header_ends != NULL:
            store.header_ends[row] = <int32_t> store.header_key.count
    store.rows = row
    return code


# ---- a copy of its own

cdef bint copy_binary(Binary* into, const Binary* b) noexcept nogil:
    if b.count == 0:
        return True
    if not binary_reserve(into, b.count, b.n):
        return False
    if b.validity != NULL:
        if not binary_first_null(into):
            return False
        memcpy(into.validity, b.validity, (b.count + 7) // 8)
    memcpy(into.ends, b.ends, (b.count + 1) * sizeof(int32_t))
    memcpy(into.data, b.data, b.n)
    into.count = b.count
    into.n = b.n
    into.nulls = b.nulls
    return True


cdef bint copy_views(Store* into, Views* to, const Store* store, const Views* v) noexcept nogil:
    """What is longer than a view goes into one piece of these alone."""
    cdef uint8_t* data
    cdef Memory* memory
    cdef View* view
    cdef bint held
    cdef int64_t i
    cdef int64_t n = 0
    to.n = v.n
    to.nulls = v.nulls
    to.begun = v.begun
    if not v.begun:
        return True
    data = <uint8_t*> malloc(v.n + 1)
    if data == NULL:
        return False
    memcpy(to.views, v.views, store.rows * sizeof(View))
    memcpy(to.validity, v.validity, (store.rows >> 3) + 1)
    for i in range(store.rows):
        view = to.views + i
        if view.n > VIEW_INLINE_MAX:
            memcpy(data + n, store.pieces[view.piece].p + view.at, view.n)
            view.piece = into.pieces_count
            view.at = <int32_t> n
            n += view.n
    memory = memory_make(data, n, NULL, NULL)
    if memory == NULL:
        free(data)
        return False
    held = store_hold(into, memory)
    memory_unref(memory)
    return held


cdef Store* store_copy(const Store* store) noexcept nogil:
    cdef Store* made = store_new()
    cdef bint done
    if made == NULL:
        return NULL
    done = (
        store_reserve(made, store.rows)
        and copy_views(made, &made.key, store, &store.key)
        and copy_views(made, &made.value, store, &store.value)
        and copy_binary(&made.header_key, &store.header_key)
        and copy_binary(&made.header_value, &store.header_value)
        and copy_binary(&made.names, &store.names)
    )
    if done and store.header_ends != NULL:
        done = larger(<void**> &made.header_ends, (made.room + 1) * sizeof(int32_t))
    if not done:
        store_unref(made)
        return NULL
    if store.header_ends != NULL:
        memcpy(made.header_ends, store.header_ends, (store.rows + 1) * sizeof(int32_t))
    if store.rows:
        memcpy(made.offsets, store.offsets, store.rows * sizeof(int64_t))
        memcpy(made.timestamps, store.timestamps, store.rows * sizeof(int64_t))
        memcpy(made.timestamp_types, store.timestamp_types, store.rows * sizeof(int32_t))
        memcpy(made.partitions, store.partitions, store.rows * sizeof(int32_t))
        memcpy(made.topics, store.topics, store.rows * sizeof(int32_t))
    made.rows = store.rows
    return made
