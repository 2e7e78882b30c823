"""One batch through the cleaner (see cleaner_filter.pxd)."""
from libc.stdint cimport int16_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET,
    BASE_TIMESTAMP_OFFSET,
    BATCH_NO_CODEC,
    BATCH_NO_MEMORY,
    BATCH_OK,
    CODEC_MASK,
    CONTROL_BIT,
    COUNT_OFFSET,
    DELETE_HORIZON_BIT,
    MAX_TIMESTAMP_OFFSET,
    NO_TIMESTAMP,
    RECORDS_OFFSET,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
    Record,
    RecordCursor,
    batch_crc_ok,
    next_record,
    records_init,
)
from kbroker.ext.batch_build cimport batch_decompress, batch_seal, batch_wrap
from kbroker.ext.cleaner_map cimport Hash, map_get, map_hash, map_prefetch, map_put
from kbroker.ext.cleaner_output cimport output_aborted, output_append
from kbroker.ext.cleaner_txns cimport (
    TxnEntry,
    last_records_free,
    last_records_hold,
    txns_free,
    txns_on_control,
    txns_on_data,
)
from kbroker.ext.compression cimport CODEC_LEVEL_DEFAULT
from kbroker.ext.compression_buffer cimport CODEC_OK, buffer_free, buffer_reserve
from kbroker.ext.log_state cimport LOG_CORRUPT, LOG_NO_MEMORY, LOG_OK
from kbroker.ext.wire cimport (
    Cursor,
    cursor_init,
    get_i8,
    get_varint,
    get_varlong,
    store_i16,
    store_i32,
    store_i64,
    store_uvarlong,
    varlong_size,
    zigzag,
)

cdef enum:
    DECOMPRESSED_BYTES_MAX = 1 << 30
    AT_ONCE = 32                # records whose slots of the map are fetched together
    GROWTH_BYTES_MAX = 14       # of a record: longer timestamp delta, longer length

ctypedef struct Block:          # records read ahead
    Record records[AT_ONCE]
    Hash hashes[AT_ONCE]
    int32_t count

ctypedef struct Verdict:        # on the records of a batch
    int32_t kept
    bint tombstones             # among those kept
    int64_t max_timestamp
    int64_t first_timestamp     # of the first one kept


cdef void filter_free(Filter* f) noexcept nogil:
    txns_free(&f.txns)
    last_records_free(&f.producers)
    buffer_free(&f.plain)
    buffer_free(&f.built)
    buffer_free(&f.packed)
    free(f.kept)
    f.kept = NULL
    f.kept_room = 0


# ---- records

cdef int records_of(Filter* f, const uint8_t* p, const BatchInfo* info, const uint8_t** begin,
                    const uint8_t** end) noexcept nogil:
    """The records of a batch, decompressed where need be."""
    cdef int code
    if info.compression == 0 or info.count == 0:
        begin[0] = p + RECORDS_OFFSET
        end[0] = p + info.length
        return LOG_OK
    f.plain.n = 0
    code = batch_decompress(p, info, DECOMPRESSED_BYTES_MAX, &f.plain)
    begin[0] = f.plain.p
    end[0] = f.plain.p + f.plain.n
    if code == BATCH_OK:
        return LOG_OK
    if code == BATCH_NO_CODEC:
        return FILTER_NO_CODEC
    return LOG_NO_MEMORY if code == BATCH_NO_MEMORY else LOG_CORRUPT


cdef int read_block(const OffsetMap* map, RecordCursor* cursor, Block* block) noexcept nogil:
    """The next records, their slots on the way to the cache: 1, 0 at the end, or LOG_CORRUPT."""
    cdef Record* record
    cdef int code = 1
    block.count = 0
    while block.count < AT_ONCE:
        record = &block.records[block.count]
        code = next_record(cursor, record)
        if code != 1:
            break
        if record.key.n >= 0:
            map_hash(map, record.key.p, record.key.n, &block.hashes[block.count])
            map_prefetch(map, &block.hashes[block.count])
        block.count += 1
    if code < 0:
        return LOG_CORRUPT
    return block.count > 0


# ---- first pass

cdef int map_records(Filter* f, const BatchInfo* info, const uint8_t* p, const uint8_t* end,
                     int64_t start, bint* full) noexcept nogil:
    cdef RecordCursor cursor
    cdef Block block
    cdef int32_t i
    cdef int code
    records_init(&cursor, info, p, end)
    while True:
        code = read_block(f.map, &cursor, &block)
        if code != 1:
            return code
        for i in range(block.count):
            if block.records[i].key.n < 0 or block.records[i].offset < start:
                continue
            if not map_put(f.map, &block.hashes[i], block.records[i].offset):
                full[0] = True
                return LOG_OK
        f.counts.mapped_records += block.count


cdef int filter_map(Filter* f, const uint8_t* p, const BatchInfo* info, int64_t start,
                    bint* full) noexcept nogil:
    cdef const uint8_t* records
    cdef const uint8_t* end
    cdef const TxnEntry* ignored
    cdef int64_t last_offset = info.base_offset + info.last_offset_delta
    cdef int code
    full[0] = False
    if not batch_crc_ok(p, info):
        return LOG_CORRUPT
    if info.control:
        code = records_of(f, p, info, &records, &end)
        if code == LOG_OK:
            code = txns_on_control(&f.txns, info, records, end, &ignored)
    else:
        code = txns_on_data(&f.txns, info)
        if code == 0 and last_offset >= start:
            code = records_of(f, p, info, &records, &end)
            if code == LOG_OK:
                code = map_records(f, info, records, end, start, full)
    if code < 0:
        return code
    if last_offset >= start and not full[0]:
        f.map.latest_offset = last_offset
    return LOG_OK


# ---- second pass: which records stay

cdef bint stays(Filter* f, const BatchInfo* info, const Record* record,
                const Hash* hash) noexcept nogil:
    if record.offset > f.map.latest_offset:
        return True
    if record.key.n < 0:
        f.counts.keyless += 1
        return False
    if record.offset < map_get(f.map, hash):
        return False
    return record.value.n >= 0 or not info.attributes & DELETE_HORIZON_BIT \
        or f.now_ms < info.base_timestamp


cdef void note_kept(Filter* f, const Record* record, int32_t index, Verdict* v) noexcept nogil:
    f.kept[index >> 3] |= 1 << (index & 7)
    if v.kept == 0:
        v.first_timestamp = record.timestamp
    v.kept += 1
    v.tombstones |= record.value.n < 0
    v.max_timestamp = max(v.max_timestamp, record.timestamp)


cdef int judge(Filter* f, const BatchInfo* info, const uint8_t* p, const uint8_t* end,
               Verdict* v) noexcept nogil:
    """Mark the records that stay."""
    cdef RecordCursor cursor
    cdef Block block
    cdef int64_t room = (<int64_t> max(info.count, 0) + 7) // 8
    cdef int32_t index = 0
    cdef int32_t i
    cdef int code
    cdef void* larger
    if room > f.kept_room:
        larger = realloc(f.kept, room)
        if larger == NULL:
            return LOG_NO_MEMORY
        f.kept = <uint8_t*> larger
        f.kept_room = room
    if room > 0:
        memset(f.kept, 0, room)
    records_init(&cursor, info, p, end)
    while True:
        code = read_block(f.map, &cursor, &block)
        if code != 1:
            f.counts.read_records += index
            return code
        for i in range(block.count):
            if info.control or stays(f, info, &block.records[i], &block.hashes[i]):
                note_kept(f, &block.records[i], index + i, v)
        index += block.count


# ---- second pass: what is written

cdef int put(Filter* f, const uint8_t* p, int64_t n, const BatchInfo* info) noexcept nogil:
    f.error = output_append(f.output, p, n, info)
    if f.error:
        return FILTER_NO_ROOM
    f.counts.written_bytes += n
    return LOG_OK


cdef const uint8_t* behind_delta(const uint8_t* p, const uint8_t* end,
                                 int64_t* delta) noexcept nogil:
    """The timestamp delta of a record, and what follows it."""
    cdef Cursor c
    cursor_init(&c, p, end - p)
    get_varint(&c)
    get_i8(&c)
    delta[0] = get_varlong(&c)
    return c.p


cdef uint8_t* copy_record(uint8_t* out, const uint8_t* p, const Record* record,
                          int64_t base_timestamp) noexcept nogil:
    """A record with its timestamp told from another base."""
    cdef int64_t wanted = record.timestamp - base_timestamp
    cdef int64_t delta
    cdef const uint8_t* rest = behind_delta(p, record.end, &delta)
    cdef int64_t n
    if delta == wanted:
        n = record.end - p
        memcpy(out, p, n)
        return out + n
    n = record.end - rest
    out = store_uvarlong(out, zigzag(1 + varlong_size(wanted) + n))
    out[0] = 0
    out = store_uvarlong(out + 1, zigzag(wanted))
    memcpy(out, rest, n)
    return out + n


cdef int copy_kept(Filter* f, const BatchInfo* info, const uint8_t* p, const uint8_t* end,
                   int32_t kept, int64_t base_timestamp) noexcept nogil:
    """The records that stay, behind room for a header, into f.built."""
    cdef RecordCursor cursor
    cdef Record record
    cdef const uint8_t* at
    cdef uint8_t* out
    cdef int32_t index = 0
    f.built.n = 0
    if buffer_reserve(&f.built, RECORDS_OFFSET + (end - p)
                      + <int64_t> kept * GROWTH_BYTES_MAX) != CODEC_OK:
        return LOG_NO_MEMORY
    out = f.built.p + RECORDS_OFFSET
    records_init(&cursor, info, p, end)
    at = cursor.p
    while next_record(&cursor, &record) == 1:
        if f.kept[index >> 3] & (1 << (index & 7)):
            out = copy_record(out, at, &record, base_timestamp)
        index += 1
        at = cursor.p
    f.built.n = out - f.built.p
    return LOG_OK


cdef int write_rewritten(Filter* f, const uint8_t* batch, const BatchInfo* info, const uint8_t* p,
                         const uint8_t* end, const Verdict* v, int64_t horizon) noexcept nogil:
    cdef BatchInfo stored = info[0]
    cdef uint8_t* header
    cdef int16_t attributes = info.attributes & (CODEC_MASK | TIMESTAMP_TYPE_BIT
                                                 | TRANSACTIONAL_BIT | CONTROL_BIT)
    cdef int64_t base_timestamp = v.first_timestamp
    cdef int code
    if horizon >= 0:
        attributes |= DELETE_HORIZON_BIT
        base_timestamp = horizon
    if not info.log_append_time:
        stored.max_timestamp = v.max_timestamp
    code = copy_kept(f, info, p, end, v.kept, base_timestamp)
    if code != LOG_OK:
        return code
    header = f.built.p
    memcpy(header, batch, RECORDS_OFFSET)
    store_i16(header + ATTRIBUTES_OFFSET, attributes)
    store_i64(header + BASE_TIMESTAMP_OFFSET, base_timestamp)
    store_i64(header + MAX_TIMESTAMP_OFFSET, stored.max_timestamp)
    store_i32(header + COUNT_OFFSET, v.kept)
    if info.compression == 0:
        batch_seal(header, f.built.n, 0)
        return put(f, header, f.built.n, &stored)
    f.packed.n = 0
    code = batch_wrap(header, header + RECORDS_OFFSET, f.built.n - RECORDS_OFFSET,
                      info.compression, CODEC_LEVEL_DEFAULT, &f.packed)
    if code == BATCH_OK:
        return put(f, f.packed.p, f.packed.n, &stored)
    return FILTER_NO_CODEC if code == BATCH_NO_CODEC else LOG_NO_MEMORY


cdef int write_empty(Filter* f, const uint8_t* batch, const BatchInfo* info) noexcept nogil:
    cdef uint8_t header[RECORDS_OFFSET]
    memcpy(header, batch, RECORDS_OFFSET)
    store_i16(header + ATTRIBUTES_OFFSET,
              info.attributes & (TIMESTAMP_TYPE_BIT | TRANSACTIONAL_BIT | CONTROL_BIT))
    store_i64(header + BASE_TIMESTAMP_OFFSET, NO_TIMESTAMP)
    store_i32(header + COUNT_OFFSET, 0)
    batch_seal(header, RECORDS_OFFSET, 0)
    return put(f, header, RECORDS_OFFSET, info)


# ---- second pass: the batch

cdef int discard(Filter* f, const BatchInfo* info, const uint8_t* records, const uint8_t* end,
                 bint* spent_marker) noexcept nogil:
    """1 when all records of the batch go because of its transaction, 0, or an error. *spent_marker:
    it is a marker of which only its horizon is awaited."""
    cdef const TxnEntry* entry = NULL
    cdef int code
    if not info.control:
        return txns_on_data(&f.txns, info)
    code = txns_on_control(&f.txns, info, records, end, &entry)
    if entry != NULL:
        f.error = output_aborted(f.output, entry)
        if f.error:
            return FILTER_NO_ROOM
    if code <= 0:
        return code
    spent_marker[0] = True
    return info.attributes & DELETE_HORIZON_BIT and info.base_timestamp <= f.now_ms


cdef int write_what_stays(Filter* f, const uint8_t* p, const BatchInfo* info,
                          const uint8_t* records, const uint8_t* end, const Verdict* v,
                          bint spent_marker) noexcept nogil:
    cdef bint has_horizon = info.attributes & DELETE_HORIZON_BIT
    cdef int64_t horizon = info.base_timestamp if has_horizon else NO_TIMESTAMP
    cdef bint set_horizon = (v.tombstones or spent_marker) and not has_horizon
    f.counts.written_records += v.kept
    if v.kept == info.count and not set_horizon:
        return put(f, p, info.length, info)
    if not batch_crc_ok(p, info):
        return LOG_CORRUPT              # a new checksum would hide it
    if set_horizon:
        horizon = f.now_ms + f.delete_retention_ms
    return write_rewritten(f, p, info, records, end, v, horizon)


cdef int filter_batch(Filter* f, const uint8_t* p, const BatchInfo* info) noexcept nogil:
    cdef const uint8_t* records = p + RECORDS_OFFSET
    cdef const uint8_t* end = p + info.length
    cdef Verdict v
    cdef bint spent_marker = False
    cdef bint keep_empty
    cdef int gone
    cdef int code = LOG_OK
    f.counts.read_bytes += info.length
    if info.control:
        code = records_of(f, p, info, &records, &end)
        if code != LOG_OK:
            return code
    gone = discard(f, info, records, end, &spent_marker)
    if gone < 0:
        return gone
    keep_empty = last_records_hold(&f.producers, info) \
        or info.base_offset + info.last_offset_delta + 1 == f.end_offset
    memset(&v, 0, sizeof(Verdict))
    v.max_timestamp = NO_TIMESTAMP
    if not gone:
        if not info.control:
            code = records_of(f, p, info, &records, &end)
        if code == LOG_OK:
            code = judge(f, info, records, end, &v)
        if code != LOG_OK:
            return code
    if v.kept > 0:
        return write_what_stays(f, p, info, records, end, &v, spent_marker)
    return write_empty(f, p, info) if keep_empty else LOG_OK
