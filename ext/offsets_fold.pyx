"""`__consumer_offsets` folded (see offsets_fold.pxd)."""
from libc.stdint cimport int16_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memset

from kbroker.ext.batch cimport (
    BATCH_NO_CODEC, BATCH_NO_MEMORY, BATCH_OK, NO_PRODUCER_ID, RECORDS_OFFSET,
    batch_error_message, next_record, records_init,
)
from kbroker.ext.batch_build cimport batch_decompress
from kbroker.ext.byte_table cimport TABLE_NO_MEMORY, table_free, table_init, table_put
from kbroker.ext.compression cimport CODEC_NONE, CODEC_OK, buffer_free, buffer_put
from kbroker.ext.endian cimport load_i16
from kbroker.ext.offsets_record cimport (
    KEY_COMMIT, KEY_LEGACY_COMMIT, UUID_BYTES, CommitKey, CommitValue, key_number,
    read_commit_key, read_commit_value,
)
from kbroker.ext.record cimport Record

cdef enum:
    ROOM_MIN = 64
    PAIR_BYTES = 12
    MARKER_ABORT = 0
    MARKER_COMMIT = 1


cdef void fold_init(Fold* fold, uint64_t seed) noexcept nogil:
    memset(fold, 0, sizeof(Fold))
    table_init(&fold.keys, seed)
    table_init(&fold.names, seed)
    table_init(&fold.ids, seed)
    table_init(&fold.pairs, seed)
    table_init(&fold.producers, seed)


cdef void fold_free(Fold* fold) noexcept nogil:
    cdef uint32_t i
    for i in range(fold.keys.count):
        if i < fold.entries_room:
            free(fold.entries[i].commit.metadata)
    for i in range(fold.pairs.count):
        if i < fold.pendings_room:
            free(fold.pendings[i].commit.metadata)
    table_free(&fold.keys)
    table_free(&fold.names)
    table_free(&fold.ids)
    table_free(&fold.pairs)
    table_free(&fold.producers)
    free(fold.entries)
    free(fold.pendings)
    free(fold.producer_heads)
    buffer_free(&fold.others_bytes)
    buffer_free(&fold.plain)
    memset(fold, 0, sizeof(Fold))


cdef void* grown(void* items, uint32_t* room, size_t size) noexcept nogil:
    """Twice the room, the new half zeroed; NULL and nothing changed when memory is out."""
    cdef size_t wanted = ROOM_MIN if room[0] == 0 else 2 * <size_t> room[0]
    cdef void* larger = realloc(items, wanted * size)
    if larger != NULL:
        memset(<uint8_t*> larger + room[0] * size, 0, (wanted - room[0]) * size)
        room[0] = <uint32_t> wanted
    return larger


cdef void fold_problem(Fold* fold, int64_t offset, const char* reason) noexcept nogil:
    if fold.problems_count < PROBLEMS_MAX:
        fold.problems[fold.problems_count].offset = offset
        fold.problems[fold.problems_count].reason = reason
    fold.problems_count += 1


# ---- entries and pending commits

cdef int64_t entry_of(Fold* fold, const Record* record, const CommitKey* key) noexcept nogil:
    """The number of the key's entry, made when it is new; TABLE_NO_MEMORY."""
    cdef int64_t number
    cdef int64_t group
    cdef int64_t topic
    cdef void* larger
    cdef Entry* entry
    if fold.keys.count == fold.entries_room:
        larger = grown(fold.entries, &fold.entries_room, sizeof(Entry))
        if larger == NULL:
            return TABLE_NO_MEMORY
        fold.entries = <Entry*> larger
    group = table_put(&fold.names, key.group.p, key.group.n)
    topic = table_put(&fold.names, key.topic.p, key.topic.n)
    if group < 0 or topic < 0:
        return TABLE_NO_MEMORY
    cdef uint32_t before = fold.keys.count
    number = table_put(&fold.keys, record.key.p + 2, record.key.n - 2)
    if number < 0 or number < before:
        return number
    entry = &fold.entries[number]
    entry.group = <uint32_t> group
    entry.topic = <uint32_t> topic
    entry.partition = key.partition
    entry.pending = NO_PENDING
    return number


cdef int commit_set(Fold* fold, Commit* commit, const CommitValue* value,
                    int64_t record_offset) noexcept nogil:
    cdef uint8_t* metadata = NULL
    cdef int64_t topic_id = NO_TOPIC_ID
    if value.topic_id != NULL:
        topic_id = table_put(&fold.ids, value.topic_id, UUID_BYTES)
        if topic_id < 0:
            return FOLD_NO_MEMORY
    if value.metadata.n > 0:
        metadata = <uint8_t*> malloc(<size_t> value.metadata.n)
        if metadata == NULL:
            return FOLD_NO_MEMORY
        memcpy(metadata, value.metadata.p, <size_t> value.metadata.n)
    free(commit.metadata)
    commit.metadata = metadata
    commit.metadata_bytes = <uint32_t> value.metadata.n
    commit.offset = value.offset
    commit.commit_timestamp = value.commit_timestamp
    commit.expire_timestamp = value.expire_timestamp
    commit.leader_epoch = value.leader_epoch
    commit.topic_id = <int32_t> topic_id
    commit.record_offset = record_offset
    return FOLD_OK


cdef void commit_drop(Commit* commit) noexcept nogil:
    free(commit.metadata)
    commit.metadata = NULL


cdef int64_t producer_of(Fold* fold, int64_t producer_id) noexcept nogil:
    cdef uint32_t before = fold.producers.count
    cdef int64_t number
    cdef void* larger
    if before == fold.producers_room:
        larger = grown(fold.producer_heads, &fold.producers_room, sizeof(int32_t))
        if larger == NULL:
            return TABLE_NO_MEMORY
        fold.producer_heads = <int32_t*> larger
    number = table_put(&fold.producers, <const uint8_t*> &producer_id, sizeof(int64_t))
    if number >= before:
        fold.producer_heads[number] = NO_PENDING
    return number


cdef int pend(Fold* fold, int64_t producer_id, uint32_t number, const CommitValue* value,
              int64_t record_offset) noexcept nogil:
    """A commit of a transaction; it replaces one of the same transaction for the same key."""
    cdef Entry* entry = &fold.entries[number]
    cdef uint8_t pair[PAIR_BYTES]
    cdef int64_t producer = producer_of(fold, producer_id)
    cdef int64_t place
    cdef Pending* pending
    cdef void* larger
    if fold.pairs.count == fold.pendings_room:
        larger = grown(fold.pendings, &fold.pendings_room, sizeof(Pending))
        if larger == NULL:
            return FOLD_NO_MEMORY
        fold.pendings = <Pending*> larger
    memcpy(pair, &producer_id, sizeof(int64_t))
    memcpy(pair + sizeof(int64_t), &number, sizeof(uint32_t))
    place = table_put(&fold.pairs, pair, PAIR_BYTES)
    if producer < 0 or place < 0:
        return FOLD_NO_MEMORY
    pending = &fold.pendings[place]
    if commit_set(fold, &pending.commit, value, record_offset) != FOLD_OK:
        return FOLD_NO_MEMORY
    pending.producer_id = producer_id
    pending.entry = number
    pending.live = True
    if not pending.in_entry:
        pending.in_entry = True
        pending.next_of_entry = entry.pending
        entry.pending = <int32_t> place
    if not pending.in_producer:
        pending.in_producer = True
        pending.next_of_producer = fold.producer_heads[producer]
        fold.producer_heads[producer] = <int32_t> place
    return FOLD_OK


cdef void remove(Fold* fold, Entry* entry) noexcept nogil:
    """A tombstone: the commit goes, and what is pending of it."""
    cdef int32_t place = entry.pending
    cdef Pending* pending
    entry.live = False
    commit_drop(&entry.commit)
    entry.pending = NO_PENDING
    while place != NO_PENDING:
        pending = &fold.pendings[place]
        place = pending.next_of_entry
        pending.in_entry = False
        pending.live = False
        commit_drop(&pending.commit)


cdef void end_transaction(Fold* fold, int64_t producer, bint committed) noexcept nogil:
    """The marker of the producer of that number."""
    cdef int32_t place = fold.producer_heads[producer]
    cdef Pending* pending
    cdef Entry* entry
    fold.producer_heads[producer] = NO_PENDING
    while place != NO_PENDING:
        pending = &fold.pendings[place]
        place = pending.next_of_producer
        pending.in_producer = False
        entry = &fold.entries[pending.entry]
        if pending.live and committed and (
            not entry.live or pending.commit.record_offset > entry.commit.record_offset
        ):
            commit_drop(&entry.commit)
            entry.commit = pending.commit
            entry.live = True
            pending.commit.metadata = NULL
        pending.live = False
        commit_drop(&pending.commit)


# ---- records

cdef int fold_commit(Fold* fold, const Record* record, bint legacy) noexcept nogil:
    cdef CommitKey key
    cdef CommitValue value
    cdef int64_t number
    cdef const char* wrong = read_commit_key(record.key, &key)
    if wrong == NULL and record.value.n >= 0:
        wrong = read_commit_value(record.value, legacy, &value)
    if wrong != NULL:
        fold_problem(fold, record.offset, wrong)
        return FOLD_OK
    number = entry_of(fold, record, &key)
    if number < 0:
        return FOLD_NO_MEMORY
    if record.value.n < 0:
        remove(fold, &fold.entries[number])
        return FOLD_OK
    if fold.batch.producer_id > NO_PRODUCER_ID:
        return pend(fold, fold.batch.producer_id, <uint32_t> number, &value, record.offset)
    if commit_set(fold, &fold.entries[number].commit, &value, record.offset) != FOLD_OK:
        return FOLD_NO_MEMORY
    fold.entries[number].live = True
    return FOLD_OK


cdef int fold_marker(Fold* fold, const Record* record) noexcept nogil:
    """A control record: int16 version, int16 type."""
    cdef int64_t producer
    cdef int16_t kind
    if record.key.n < 4:
        fold_problem(fold, record.offset, "a control record without a type")
        return FOLD_OK
    kind = load_i16(record.key.p + 2)
    if kind == MARKER_ABORT or kind == MARKER_COMMIT:
        producer = producer_of(fold, fold.batch.producer_id)
        if producer < 0:
            return FOLD_NO_MEMORY
        end_transaction(fold, producer, kind == MARKER_COMMIT)
    return FOLD_OK


cdef int keep_other(Fold* fold, const Record* record) noexcept nogil:
    cdef Other* other = &fold.others[fold.others_count]
    other.offset = record.offset
    other.at = fold.others_bytes.n
    other.key_bytes = record.key.n
    other.value_bytes = record.value.n
    if buffer_put(&fold.others_bytes, record.key.p, record.key.n) != CODEC_OK:
        return FOLD_NO_MEMORY
    if record.value.n > 0:
        if buffer_put(&fold.others_bytes, record.value.p, record.value.n) != CODEC_OK:
            fold.others_bytes.n = other.at
            return FOLD_NO_MEMORY
    fold.others_count += 1
    return FOLD_OK


cdef int fold_record(Fold* fold, const Record* record) noexcept nogil:
    cdef int16_t number
    fold.records += 1
    if fold.batch.control:
        return fold_marker(fold, record)
    if record.key.n < 2:
        fold_problem(fold, record.offset, "a record without a key that says what it is")
        return FOLD_OK
    if fold.keeps_all:
        return keep_other(fold, record)
    number = key_number(record.key)
    if number == KEY_COMMIT or number == KEY_LEGACY_COMMIT:
        return fold_commit(fold, record, number == KEY_LEGACY_COMMIT)
    return keep_other(fold, record)


# ---- batches

cdef int fold_open(Fold* fold, const uint8_t* p, const BatchInfo* info,
                   size_t plain_bytes_max) noexcept nogil:
    cdef int code = BATCH_OK
    fold_open_plain(fold, info, p + RECORDS_OFFSET, info.length - RECORDS_OFFSET)
    fold.plain.n = 0
    if info.compression != CODEC_NONE and info.count > 0:
        code = batch_decompress(p, info, plain_bytes_max, &fold.plain)
        fold_open_plain(fold, info, fold.plain.p, fold.plain.n)
    if code == BATCH_OK:
        return FOLD_OK
    fold_open_plain(fold, info, p, 0)
    fold.cursor.left = 0
    if code == BATCH_NO_MEMORY:
        return FOLD_NO_MEMORY
    if code == BATCH_NO_CODEC:
        return FOLD_NO_CODEC
    fold_problem(fold, info.base_offset, batch_error_message(code))
    return FOLD_OK


cdef void fold_open_plain(Fold* fold, const BatchInfo* info, const uint8_t* p,
                          size_t n) noexcept nogil:
    fold.batch = info[0]
    records_init(&fold.cursor, info, p, p + n)


cdef int fold_records(Fold* fold) noexcept nogil:
    cdef Record record
    cdef int code
    while True:
        if fold.others_count == OTHERS_MAX or fold.others_bytes.n >= OTHERS_BYTES_MAX:
            return FOLD_MORE
        code = next_record(&fold.cursor, &record)
        if code == 0:
            return FOLD_OK
        if code < 0:
            fold_problem(fold, fold.batch.base_offset, batch_error_message(code))
            fold.cursor.left = 0
            fold.cursor.p = fold.cursor.end
            return FOLD_OK
        code = fold_record(fold, &record)
        if code != FOLD_OK:
            return code
