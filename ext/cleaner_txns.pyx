"""Transactions as a cleaning meets them (see cleaner_txns.pxd)."""
from libc.errno cimport errno
from libc.stdlib cimport free, malloc, qsort, realloc
from libc.string cimport memset

from kbroker.ext.batch cimport (
    NO_PRODUCER_ID,
    Record,
    RecordCursor,
    next_record,
    records_init,
)
from kbroker.ext.endian cimport load_i16, load_i64
from kbroker.ext.log_state cimport LOG_NO_MEMORY, LOG_OK, log_disk_error, log_floor
from kbroker.ext.posix cimport (
    ENOENT,
    ENOMEM,
    O_CLOEXEC,
    O_RDONLY,
    close,
    open,
    pthread_mutex_lock,
    pthread_mutex_unlock,
)
from kbroker.ext.producers cimport PRODUCER_BATCHES, Producer
from kbroker.ext.segment cimport (
    SEGMENT_PATH_BYTES,
    Segment,
    segment_path,
    segment_ref,
    segment_unref,
)
from kbroker.ext.txn_index cimport TXN_ENTRY_BYTES
from kbroker.ext.walk cimport read_fully

cdef enum:
    ENTRIES_AT_ONCE = 64
    ABORT = 0
    COMMIT = 1
    MARKER_KEY_BYTES = 4


cdef bint grow(void** list, int32_t* capacity, int32_t count, size_t item_bytes) noexcept nogil:
    """Room for one more."""
    cdef int32_t larger
    cdef void* moved
    if count < capacity[0]:
        return True
    larger = max(16, 2 * capacity[0])
    moved = realloc(list[0], larger * item_bytes)
    if moved == NULL:
        return False
    list[0] = moved
    capacity[0] = larger
    return True


# ---- the transaction indexes

cdef int by_first_offset(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const TxnEntry*> a).first_offset
    cdef int64_t y = (<const TxnEntry*> b).first_offset
    return (x > y) - (x < y)


cdef int read_index(Txns* t, int fd, int64_t start, int64_t end, bint* complete) noexcept nogil:
    cdef uint8_t entries[ENTRIES_AT_ONCE * TXN_ENTRY_BYTES]
    cdef TxnEntry* entry
    cdef const uint8_t* p
    cdef int64_t at = 0
    cdef int64_t got
    cdef int64_t i
    while True:
        got = read_fully(fd, entries, ENTRIES_AT_ONCE * TXN_ENTRY_BYTES, at)
        if got < TXN_ENTRY_BYTES:
            return <int> -got if got < 0 else 0
        for i in range(got // TXN_ENTRY_BYTES):
            p = entries + i * TXN_ENTRY_BYTES
            if load_i64(p + 18) >= start and load_i64(p + 10) < end:
                if not grow(<void**> &t.entries, &t.capacity, t.count, sizeof(TxnEntry)):
                    return ENOMEM
                entry = &t.entries[t.count]
                entry.producer_id = load_i64(p + 2)
                entry.first_offset = load_i64(p + 10)
                entry.last_offset = load_i64(p + 18)
                entry.last_stable_offset = load_i64(p + 26)
                t.count += 1
            if load_i64(p + 26) >= end:
                complete[0] = True
                return 0
        at += got // TXN_ENTRY_BYTES * TXN_ENTRY_BYTES


cdef int read_segment(Txns* t, const Segment* s, int64_t start, int64_t end,
                      bint* complete) noexcept nogil:
    cdef char path[SEGMENT_PATH_BYTES]
    cdef int error
    segment_path(s, ".txnindex", path)
    cdef int fd = open(path, O_RDONLY | O_CLOEXEC, 0)
    if fd < 0:
        return 0 if errno == ENOENT else errno
    error = read_index(t, fd, start, end, complete)
    close(fd)
    return error


cdef int txns_load(Txns* t, Log* log, int64_t start, int64_t end) noexcept nogil:
    """A segment that is retired meanwhile takes what needs its entries with it."""
    cdef Segment* s = NULL
    cdef bint complete = False
    cdef int error = 0
    memset(t, 0, sizeof(Txns))
    pthread_mutex_lock(&log.lock)
    cdef int32_t i = max(0, log_floor(log, start))
    while i < log.count and error == 0 and not complete:
        s = log.segments[i]
        i += 1
        if not s.has_aborted:
            continue
        segment_ref(s)
        pthread_mutex_unlock(&log.lock)
        error = read_segment(t, s, start, end, &complete)
        pthread_mutex_lock(&log.lock)
        i = log_floor(log, s.base_offset) + 1
        segment_unref(s)
    pthread_mutex_unlock(&log.lock)
    if t.count > 0:
        qsort(t.entries, t.count, sizeof(TxnEntry), by_first_offset)
    return log_disk_error(log, error) if error else LOG_OK


cdef void txns_free(Txns* t) noexcept nogil:
    free(t.entries)
    free(t.aborted)
    free(t.committed)
    memset(t, 0, sizeof(Txns))


cdef void txns_rewind(Txns* t) noexcept nogil:
    t.next = 0
    t.aborted_count = 0
    t.committed_count = 0


# ---- batches, in their order

cdef int32_t find_aborted(const Txns* t, int64_t producer_id) noexcept nogil:
    cdef int32_t i
    for i in range(t.aborted_count):
        if t.entries[t.aborted[i].entry].producer_id == producer_id:
            return i
    return -1


cdef int32_t find_committed(const Txns* t, int64_t producer_id) noexcept nogil:
    cdef int32_t i
    for i in range(t.committed_count):
        if t.committed[i] == producer_id:
            return i
    return -1


cdef bint reach(Txns* t, int64_t offset) noexcept nogil:
    """Aborted transactions that begin at or below the offset are ongoing now."""
    while t.next < t.count and t.entries[t.next].first_offset <= offset:
        if find_aborted(t, t.entries[t.next].producer_id) < 0:
            if not grow(<void**> &t.aborted, &t.aborted_capacity, t.aborted_count,
                        sizeof(Ongoing)):
                return False
            t.aborted[t.aborted_count].entry = t.next
            t.aborted[t.aborted_count].observed = 0
            t.aborted_count += 1
        t.next += 1
    return True


cdef int txns_on_data(Txns* t, const BatchInfo* info) noexcept nogil:
    cdef int32_t i
    if not reach(t, info.base_offset + info.last_offset_delta):
        return LOG_NO_MEMORY
    if not info.transactional:
        return 0
    i = find_aborted(t, info.producer_id)
    if i >= 0:
        t.aborted[i].observed = 1
        return 1
    if find_committed(t, info.producer_id) < 0:
        if not grow(<void**> &t.committed, &t.committed_capacity, t.committed_count,
                    sizeof(int64_t)):
            return LOG_NO_MEMORY
        t.committed[t.committed_count] = info.producer_id
        t.committed_count += 1
    return 0


cdef int end_aborted(Txns* t, int64_t producer_id, const TxnEntry** kept) noexcept nogil:
    cdef int32_t i = find_aborted(t, producer_id)
    if i < 0:
        return 1
    if t.aborted[i].observed:
        kept[0] = &t.entries[t.aborted[i].entry]
    t.aborted_count -= 1
    t.aborted[i] = t.aborted[t.aborted_count]
    return kept[0] == NULL


cdef int end_committed(Txns* t, int64_t producer_id) noexcept nogil:
    cdef int32_t i = find_committed(t, producer_id)
    if i < 0:
        return 1
    t.committed_count -= 1
    t.committed[i] = t.committed[t.committed_count]
    return 0


cdef int txns_on_control(Txns* t, const BatchInfo* info, const uint8_t* records,
                         const uint8_t* end, const TxnEntry** kept) noexcept nogil:
    cdef RecordCursor cursor
    cdef Record record
    cdef int kind
    kept[0] = NULL
    if not reach(t, info.base_offset + info.last_offset_delta):
        return LOG_NO_MEMORY
    records_init(&cursor, info, records, end)
    if next_record(&cursor, &record) != 1:
        return 1                        # emptied by an earlier cleaning
    if record.key.n < MARKER_KEY_BYTES:
        return 0
    kind = load_i16(record.key.p + 2)
    if kind == ABORT:
        return end_aborted(t, info.producer_id, kept)
    return end_committed(t, info.producer_id) if kind == COMMIT else 0


# ---- producers

cdef int by_producer(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const LastRecord*> a).producer_id
    cdef int64_t y = (<const LastRecord*> b).producer_id
    return (x > y) - (x < y)


cdef void fill_records(LastRecords* l, Log* log) noexcept nogil:
    cdef Producer* p
    cdef LastRecord* record
    cdef int32_t i
    for i in range(log.producers.capacity):
        p = log.producers.slots[i]
        if p == NULL:
            continue
        record = &l.items[l.count]
        l.count += 1
        record.producer_id = p.id
        record.epoch = p.epoch
        record.last_data_offset = -1
        if p.count > 0:
            record.last_data_offset = p.batches[(p.first + p.count - 1)
                                                % PRODUCER_BATCHES].last_offset


cdef int last_records_load(LastRecords* l, Log* log) noexcept nogil:
    cdef int code = LOG_OK
    l.items = NULL
    l.count = 0
    pthread_mutex_lock(&log.lock)
    if log.producers != NULL and log.producers.count > 0:
        l.items = <LastRecord*> malloc(log.producers.count * sizeof(LastRecord))
        if l.items == NULL:
            code = LOG_NO_MEMORY
        else:
            fill_records(l, log)
    pthread_mutex_unlock(&log.lock)
    if l.count > 0:
        qsort(l.items, l.count, sizeof(LastRecord), by_producer)
    return code


cdef void last_records_free(LastRecords* l) noexcept nogil:
    free(l.items)
    l.items = NULL
    l.count = 0


cdef bint last_records_hold(const LastRecords* l, const BatchInfo* info) noexcept nogil:
    cdef int32_t low = 0
    cdef int32_t high = l.count
    cdef int32_t middle
    if info.producer_id == NO_PRODUCER_ID:
        return False
    while low < high:
        middle = low + (high - low) // 2
        if l.items[middle].producer_id < info.producer_id:
            low = middle + 1
        else:
            high = middle
    if low == l.count or l.items[low].producer_id != info.producer_id:
        return False
    if l.items[low].last_data_offset >= 0:
        return info.base_offset + info.last_offset_delta == l.items[low].last_data_offset
    return info.control and info.producer_epoch == l.items[low].epoch
