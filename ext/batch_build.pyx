"""Record batches that are made here: built from records, decompressed, put in another codec."""

from libc.string cimport memcpy

from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET, BASE_OFFSET_OFFSET, BASE_SEQUENCE_OFFSET, BASE_TIMESTAMP_OFFSET,
    BATCH_BAD_CODEC, BATCH_BAD_COMPRESSION, BATCH_BAD_COUNT, BATCH_BOMB, BATCH_NO_CODEC,
    BATCH_NO_MEMORY, BATCH_OK, BATCH_TOO_LARGE, CODEC_MASK, CONTROL_BIT, COUNT_OFFSET, CRC_OFFSET,
    LAST_OFFSET_DELTA_OFFSET,
    LEADER_EPOCH_OFFSET, LENGTH_OFFSET, LENGTH_PREFIX_BYTES, MAGIC_OFFSET, MAX_TIMESTAMP_OFFSET,
    NO_TIMESTAMP, PRODUCER_EPOCH_OFFSET, PRODUCER_ID_OFFSET, RECORDS_OFFSET, TRANSACTIONAL_BIT,
)
from kbroker.ext.compression cimport (
    CODEC_CORRUPT, CODEC_MAX, CODEC_NONE, CODEC_OK, CODEC_TOO_LARGE,
    CODEC_UNAVAILABLE, buffer_free, buffer_reserve, codec_compress, codec_decompress,
)
from kbroker.ext.crc32c cimport crc32c, crc32c_combine
from kbroker.ext.endian cimport load_i16, store_be32
from kbroker.ext.posix cimport (
    pthread_mutex_init, pthread_mutex_lock, pthread_mutex_t, pthread_mutex_unlock,
)
from kbroker.ext.record cimport RECORD_OVERHEAD_MAX
from kbroker.ext.wire cimport (
    store_i16, store_i32, store_i64, store_uvarlong, varlong_size, zigzag,
)


cdef int batch_code(int codec_code) noexcept nogil:
    if codec_code == CODEC_OK:
        return BATCH_OK
    if codec_code == CODEC_CORRUPT:
        return BATCH_BAD_COMPRESSION
    if codec_code == CODEC_TOO_LARGE:
        return BATCH_BOMB
    return BATCH_NO_CODEC if codec_code == CODEC_UNAVAILABLE else BATCH_NO_MEMORY


# ---- build

cdef int builder_init(BatchBuilder* b, size_t room) noexcept nogil:
    b.buffer.p = NULL
    b.buffer.n = b.buffer.room = 0
    builder_reset(b)
    if buffer_reserve(&b.buffer, RECORDS_OFFSET + room) != CODEC_OK:
        return BATCH_NO_MEMORY
    b.buffer.n = RECORDS_OFFSET
    return BATCH_OK


cdef void builder_reset(BatchBuilder* b) noexcept nogil:
    b.base_timestamp = NO_TIMESTAMP
    b.max_timestamp = NO_TIMESTAMP
    b.count = 0
    if b.buffer.p != NULL:
        b.buffer.n = RECORDS_OFFSET


cdef void builder_free(BatchBuilder* b) noexcept nogil:
    buffer_free(&b.buffer)


cdef inline uint64_t slice_size(Slice s) noexcept nogil:
    return varlong_size(s.n) + (s.n if s.n > 0 else 0)


cdef inline uint8_t* put_slice(uint8_t* p, Slice s) noexcept nogil:
    p = store_uvarlong(p, zigzag(s.n))
    if s.n > 0:
        memcpy(p, s.p, s.n)
        p += s.n
    return p


cdef inline uint64_t record_size(
    const BatchBuilder* b, int64_t delta, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil:
    """Bytes of the record behind its length."""
    cdef uint64_t size
    cdef int32_t i
    size = 1 + varlong_size(delta) + varlong_size(b.count) + varlong_size(header_count)
    size += slice_size(key) + slice_size(value)
    for i in range(header_count):
        size += slice_size(headers[i].key) + slice_size(headers[i].value)
    return size


cdef inline void put_record(
    BatchBuilder* b, uint64_t size, int64_t timestamp, int64_t base, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil:
    cdef uint8_t* p = store_uvarlong(b.buffer.p + b.buffer.n, zigzag(<int64_t> size))
    cdef int32_t i
    p[0] = 0
    p = store_uvarlong(p + 1, zigzag(<int64_t> (<uint64_t> timestamp - <uint64_t> base)))
    p = store_uvarlong(p, zigzag(b.count))
    p = put_slice(put_slice(p, key), value)
    p = store_uvarlong(p, zigzag(header_count))
    for i in range(header_count):
        p = put_slice(put_slice(p, headers[i].key), headers[i].value)
    b.buffer.n = p - b.buffer.p
    b.base_timestamp = base
    if b.count == 0 or timestamp > b.max_timestamp:
        b.max_timestamp = timestamp
    b.count += 1


cdef int builder_append(
    BatchBuilder* b, int64_t timestamp, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil:
    cdef int64_t base = b.base_timestamp if b.count else timestamp
    cdef uint64_t size = record_size(
        b, <int64_t> (<uint64_t> timestamp - <uint64_t> base), key, value, headers, header_count
    )
    if size + b.buffer.n + RECORD_OVERHEAD_MAX > 0x7FFFFFFF:
        return BATCH_TOO_LARGE
    if buffer_reserve(&b.buffer, size + RECORD_OVERHEAD_MAX) != CODEC_OK:
        return BATCH_NO_MEMORY
    put_record(b, size, timestamp, base, key, value, headers, header_count)
    return BATCH_OK


cdef int builder_append_within(
    BatchBuilder* b, int64_t timestamp, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil:
    cdef int64_t base = b.base_timestamp if b.count else timestamp
    cdef uint64_t size = record_size(
        b, <int64_t> (<uint64_t> timestamp - <uint64_t> base), key, value, headers, header_count
    )
    if b.buffer.n + varlong_size(size) + size > b.buffer.room or b.count == 0x7FFFFFFF:
        return BATCH_TOO_LARGE
    put_record(b, size, timestamp, base, key, value, headers, header_count)
    return BATCH_OK


cdef void builder_borrow(BatchBuilder* b, uint8_t* p, size_t room) noexcept nogil:
    b.buffer.p = p
    b.buffer.room = room
    builder_reset(b)


cdef void batch_seal(uint8_t* p, size_t n, int codec) noexcept nogil:
    cdef int16_t attributes = load_i16(p + ATTRIBUTES_OFFSET) & ~CODEC_MASK | codec
    store_i32(p + LENGTH_OFFSET, <int32_t> (n - LENGTH_PREFIX_BYTES))
    store_i16(p + ATTRIBUTES_OFFSET, attributes)
    store_be32(p + CRC_OFFSET, crc32c(p + ATTRIBUTES_OFFSET, n - ATTRIBUTES_OFFSET))


cdef int builder_compress(BatchBuilder* b, int codec, int level) noexcept nogil:
    """Put the records' compressed form into their place."""
    cdef Buffer packed
    cdef int code
    packed.p = NULL
    packed.n = packed.room = 0
    if buffer_reserve(&packed, RECORDS_OFFSET) != CODEC_OK:
        return BATCH_NO_MEMORY
    packed.n = RECORDS_OFFSET
    code = codec_compress(
        codec, level, b.buffer.p + RECORDS_OFFSET, b.buffer.n - RECORDS_OFFSET, &packed
    )
    if code != CODEC_OK:
        buffer_free(&packed)
        return batch_code(code)
    buffer_free(&b.buffer)
    b.buffer = packed
    return BATCH_OK


cdef int builder_finish(
    BatchBuilder* b, int codec, int level, const BatchStamp* stamp
) noexcept nogil:
    cdef int code
    if b.count == 0:
        return BATCH_BAD_COUNT
    if codec != CODEC_NONE:
        code = builder_compress(b, codec, level)
        if code != BATCH_OK:
            return code
    builder_stamp(b, b.buffer.p, b.buffer.n, codec, stamp)
    return BATCH_OK


cdef void put_stamp(
    const BatchBuilder* b, uint8_t* p, size_t n, int codec, const BatchStamp* stamp
) noexcept nogil:
    """All of the header but the checksum."""
    cdef int16_t attributes = <int16_t> codec
    if stamp.transactional:
        attributes |= TRANSACTIONAL_BIT
    if stamp.control:
        attributes |= CONTROL_BIT
    p[MAGIC_OFFSET] = 2
    store_i64(p + BASE_OFFSET_OFFSET, stamp.base_offset)
    store_i32(p + LEADER_EPOCH_OFFSET, stamp.leader_epoch)
    store_i32(p + LAST_OFFSET_DELTA_OFFSET, b.count - 1)
    store_i64(p + BASE_TIMESTAMP_OFFSET, b.base_timestamp)
    store_i64(p + MAX_TIMESTAMP_OFFSET, b.max_timestamp)
    store_i64(p + PRODUCER_ID_OFFSET, stamp.producer_id)
    store_i16(p + PRODUCER_EPOCH_OFFSET, stamp.producer_epoch)
    store_i32(p + BASE_SEQUENCE_OFFSET, stamp.base_sequence)
    store_i32(p + COUNT_OFFSET, b.count)
    store_i16(p + ATTRIBUTES_OFFSET, attributes)
    store_i32(p + LENGTH_OFFSET, <int32_t> (n - LENGTH_PREFIX_BYTES))


cdef void builder_stamp(
    const BatchBuilder* b, uint8_t* p, size_t n, int codec, const BatchStamp* stamp
) noexcept nogil:
    put_stamp(b, p, n, codec, stamp)
    store_be32(p + CRC_OFFSET, crc32c(p + ATTRIBUTES_OFFSET, n - ATTRIBUTES_OFFSET))


cdef void builder_stamp_summed(
    const BatchBuilder* b, uint8_t* p, size_t n, const BatchStamp* stamp, uint32_t records_crc
) noexcept nogil:
    cdef uint32_t crc
    put_stamp(b, p, n, CODEC_NONE, stamp)
    crc = crc32c(p + ATTRIBUTES_OFFSET, RECORDS_OFFSET - ATTRIBUTES_OFFSET)
    store_be32(p + CRC_OFFSET, crc32c_combine(crc, records_crc, n - RECORDS_OFFSET))


# ---- another codec

cdef pthread_mutex_t large_batch
pthread_mutex_init(&large_batch, NULL)


cdef void large_batch_begin() noexcept nogil:
    pthread_mutex_lock(&large_batch)


cdef void large_batch_end() noexcept nogil:
    pthread_mutex_unlock(&large_batch)


cdef int batch_decompress(
    const uint8_t* p, const BatchInfo* info, size_t limit, Buffer* out
) noexcept nogil:
    if info.compression > CODEC_MAX:
        return BATCH_BAD_CODEC
    return batch_code(
        codec_decompress(
            info.compression, p + RECORDS_OFFSET, info.length - RECORDS_OFFSET, limit, out
        )
    )


cdef int batch_recompress(
    const uint8_t* p, const BatchInfo* info, int codec, int level, size_t limit, Buffer* out
) noexcept nogil:
    cdef Buffer plain
    cdef int code
    if info.compression == CODEC_NONE:
        return batch_wrap(
            p, p + RECORDS_OFFSET, info.length - RECORDS_OFFSET, codec, level, out
        )
    plain.p = NULL
    plain.n = plain.room = 0
    code = batch_decompress(p, info, limit, &plain)
    if code == BATCH_OK:
        code = batch_wrap(p, plain.p, plain.n, codec, level, out)
    buffer_free(&plain)
    return code


cdef int batch_wrap(
    const uint8_t* header, const uint8_t* records, size_t n, int codec, int level, Buffer* out
) noexcept nogil:
    cdef size_t start = out.n
    cdef int code
    if buffer_reserve(out, RECORDS_OFFSET) != CODEC_OK:
        return BATCH_NO_MEMORY
    memcpy(out.p + start, header, RECORDS_OFFSET)
    out.n += RECORDS_OFFSET
    code = codec_compress(codec, level, records, n, out)
    if code == CODEC_OK and out.n - start > 0x7FFFFFFF:
        code = CODEC_TOO_LARGE
    if code != CODEC_OK:
        out.n = start
        return batch_code(code)
    batch_seal(out.p + start, out.n - start, codec)
    return BATCH_OK
