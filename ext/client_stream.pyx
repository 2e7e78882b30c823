"""The records of one partition of one Fetch answer (see client_stream.pxd)."""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, qsort
from libc.string cimport memcpy, memset

from kbroker.ext.batch cimport (
    BATCH_BAD_CRC, BATCH_BAD_RECORD, BATCH_BOMB, BATCH_NO_MEMORY, BATCH_OK, BATCH_SHORT,
    NO_PRODUCER_ID, RECORDS_OFFSET, BatchInfo, RecordCursor, batch_crc_ok, batch_error_message,
    batch_parse, next_record, records_init,
)
from kbroker.ext.batch_build cimport batch_decompress
from kbroker.ext.client_counted cimport memory_make, memory_ref, memory_unref
from kbroker.ext.compression cimport CODEC_NONE, Buffer, buffer_free
from kbroker.ext.endian cimport load_i16, load_i64
from kbroker.ext.record cimport Record
from kbroker.ext.wire cimport unlikely

cdef enum:
    ABORT = 0                       # type of a control record that ends a transaction
    MARKER_KEY_BYTES = 4            # version and type

cdef uint64_t SPREAD = 0x9E3779B97F4A7C15


cdef int by_first_offset(const void* a, const void* b) noexcept nogil:
    cdef int64_t x = (<const Aborted*> a).first_offset
    cdef int64_t y = (<const Aborted*> b).first_offset
    return (x > y) - (x < y)


cdef bint take_aborted(
    Stream* s, const uint8_t* p, int32_t count, size_t bytes_each
) noexcept nogil:
    cdef int32_t i
    s.producers_room = 2
    while s.producers_room < 2 * (count + 1):
        s.producers_room *= 2
    s.aborted = <Aborted*> malloc(count * sizeof(Aborted))
    s.producers = <Producer*> calloc(s.producers_room, sizeof(Producer))
    if s.aborted == NULL or s.producers == NULL:
        return False
    for i in range(count):
        s.aborted[i].producer_id = load_i64(p + i * bytes_each)
        s.aborted[i].first_offset = load_i64(p + i * bytes_each + 8)
    qsort(s.aborted, count, sizeof(Aborted), by_first_offset)
    s.aborted_count = count
    return True


cdef bint stream_open(
    Stream* s, Memory* frame, const uint8_t* p, const uint8_t* end, int64_t position,
    const uint8_t* aborted, int32_t aborted_count, size_t aborted_bytes, const StreamRules* rules,
) noexcept nogil:
    memset(s, 0, sizeof(Stream))
    s.rules = rules[0]
    if aborted_count > 0 and rules.read_committed:
        if not take_aborted(s, aborted, aborted_count, aborted_bytes):
            stream_close(s)
            return False
    s.frame = memory_ref(frame)
    s.p = p
    s.end = end
    s.position = position
    s.start = position
    s.epoch = -1
    return True


cdef void close_batch(Stream* s) noexcept nogil:
    if s.open:
        memory_unref(s.memory)
        s.memory = NULL
        s.open = False


cdef void stream_close(Stream* s) noexcept nogil:
    close_batch(s)
    free(s.aborted)
    s.aborted = NULL
    free(s.producers)
    s.producers = NULL
    memory_unref(s.frame)
    s.frame = NULL
    s.p = NULL
    s.end = NULL


# ---- aborted transactions

cdef Producer* producer_at(Stream* s, int64_t producer_id) noexcept nogil:
    """Its place in the table, which is never full. The seed is no broker's to know: with ids made
    to collide each batch would take as long as the list."""
    cdef uint64_t mask = <uint64_t> s.producers_room - 1
    cdef uint64_t h = (<uint64_t> producer_id ^ <uint64_t> <size_t> s.producers) * SPREAD
    cdef uint64_t i = (h ^ (h >> 32)) & mask
    while s.producers[i].used and s.producers[i].id != producer_id:
        i = (i + 1) & mask
    s.producers[i].id = producer_id
    return s.producers + i


cdef bint is_abort_marker(const uint8_t* p, const BatchInfo* info) noexcept nogil:
    cdef RecordCursor c
    cdef Record record
    if info.compression != CODEC_NONE:
        return False
    records_init(&c, info, p + RECORDS_OFFSET, p + info.length)
    if next_record(&c, &record) != 1 or record.key.n < MARKER_KEY_BYTES:
        return False
    return load_i16(record.key.p + 2) == ABORT


cdef bint is_aborted(Stream* s, const uint8_t* p, int64_t last_offset) noexcept nogil:
    """Whether the batch in s.info belongs to an aborted transaction. Batches come in order."""
    cdef Producer* producer
    if s.aborted_count == 0 or s.info.producer_id == NO_PRODUCER_ID:
        return False
    while s.aborted_at < s.aborted_count and (
        s.aborted[s.aborted_at].first_offset <= last_offset
    ):
        producer = producer_at(s, s.aborted[s.aborted_at].producer_id)
        producer.used = True
        producer.aborting = True
        s.aborted_at += 1
    producer = producer_at(s, s.info.producer_id)
    if s.info.control:
        # Behind the marker the producer writes another transaction.
        if producer.aborting and is_abort_marker(p, &s.info):
            producer.aborting = False
        return False
    return s.info.transactional and producer.aborting


# ---- batches

cdef int open_batch(Stream* s, const uint8_t* p) noexcept nogil:
    """Make the cursor stand before the records of the batch at p, in s.info."""
    cdef Buffer plain
    cdef int code
    if s.info.compression == CODEC_NONE:
        s.memory = memory_ref(s.frame)
        records_init(&s.cursor, &s.info, p + RECORDS_OFFSET, p + s.info.length)
    else:
        plain.p = NULL
        plain.n = plain.room = 0
        code = batch_decompress(p, &s.info, s.rules.limit, &plain)
        if code == BATCH_OK:
            s.memory = memory_make(plain.p, plain.n, NULL, NULL)
            code = BATCH_OK if s.memory != NULL else BATCH_NO_MEMORY
        if code != BATCH_OK:
            buffer_free(&plain)
            return code
        records_init(&s.cursor, &s.info, plain.p, plain.p + plain.n)
    s.open = True
    return STREAM_RECORDS


cdef int stream_plain(Stream* s, const uint8_t* p, size_t n) noexcept nogil:
    cdef uint8_t* copy
    if <int64_t> n > s.rules.limit:
        return BATCH_BOMB
    copy = <uint8_t*> malloc(n + 1)
    if copy != NULL:
        s.memory = memory_make(copy, n, NULL, NULL)
    if copy == NULL or s.memory == NULL:
        free(copy)
        return BATCH_NO_MEMORY
    memcpy(copy, p, n)
    records_init(&s.cursor, &s.info, copy, copy + n)
    s.open = True
    s.p += s.info.length
    return STREAM_RECORDS


cdef int next_batch(Stream* s) noexcept nogil:
    """Open the next batch with something to read: `p` moves behind it."""
    cdef const uint8_t* p
    cdef int64_t last
    cdef int code
    while s.p < s.end:
        p = s.p
        code = batch_parse(p, s.end, &s.info)
        if code == BATCH_SHORT:
            break
        if code != BATCH_OK:
            return code
        if s.rules.check_crcs and p + s.info.length > s.sound and not batch_crc_ok(p, &s.info):
            return BATCH_BAD_CRC
        last = s.info.base_offset + s.info.last_offset_delta
        if s.info.base_offset < 0 or s.info.last_offset_delta < 0 or last < s.info.base_offset:
            return STREAM_BAD_OFFSET
        s.batches_passed += 1
        if last >= s.position or s.info.control:
            s.epoch = s.info.leader_epoch
        if is_aborted(s, p, last) or s.info.control or last < s.position:
            s.p = p + s.info.length
            s.position = max(s.position, last + 1)
            continue
        code = open_batch(s, p)
        if code == STREAM_RECORDS:
            s.p = p + s.info.length
        return code
    if s.batches_passed == 0:
        return STREAM_CUT if s.p < s.end else STREAM_END
    return STREAM_BEHIND if s.position == s.start else STREAM_END


cdef int stream_batch(Stream* s) noexcept nogil:
    while True:
        if s.open:
            if s.cursor.left > 0:
                return STREAM_RECORDS
            # Offsets at the end of the batch may be gone by compaction.
            if s.cursor.p != s.cursor.end:
                return BATCH_BAD_RECORD
            s.position = max(s.position, s.info.base_offset + s.info.last_offset_delta + 1)
            close_batch(s)
        code = next_batch(s)
        if code != STREAM_RECORDS:
            return code


cdef int stream_record(Stream* s, Record* out) noexcept nogil:
    cdef int code
    cdef int64_t delta
    while s.cursor.left > 0:
        code = next_record(&s.cursor, out)
        if unlikely(code != 1):
            return BATCH_BAD_RECORD
        delta = out.offset - s.info.base_offset
        if unlikely(delta < 0 or delta > s.info.last_offset_delta):
            return STREAM_BAD_OFFSET
        if unlikely(out.offset < s.position):
            continue
        s.position = out.offset + 1
        return 1
    return 0


cdef const char* stream_message(int code) noexcept nogil:
    if code == STREAM_CUT:
        return b"the answer holds a part of a batch and no whole one"
    if code == STREAM_BEHIND:
        return b"every batch of the answer ends before the offset that was asked for"
    if code == STREAM_BAD_OFFSET:
        return b"an offset is not where its batch says it is"
    return batch_error_message(code)
