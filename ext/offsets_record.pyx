"""Committed offsets as `__consumer_offsets` stores them (see offsets_record.pxd)."""
from libc.stdint cimport uint32_t, uint64_t
from libc.string cimport memcmp, memcpy

from kbroker.ext.endian cimport load_i16
from kbroker.ext.wire cimport (
    Cursor, Writer, cursor_init, cursor_left, get_compact_string, get_i16, get_i32, get_i64,
    get_string, get_tag_count, get_uuid, get_uvarint, put_compact_string, put_i16, put_i32,
    put_i64, put_no_tags, put_raw, put_string, put_uvarint, skip,
)

cdef enum:
    TOPIC_ID_TAG = 0

cdef uint64_t HIGH_BITS = 0x8080808080808080
cdef uint8_t[<int> UUID_BYTES] zero_uuid      # a global is all zeros


# ---- strings

cdef inline int sequence_bytes(const uint8_t* p, size_t n) noexcept nogil:
    """Bytes of the character at p, which is not ASCII; 0 when it is none."""
    cdef int wanted = 2 if p[0] < 0xE0 else 3 if p[0] < 0xF0 else 4
    cdef int i
    if p[0] < 0xC2 or p[0] > 0xF4 or <size_t> wanted > n:
        return 0
    for i in range(1, wanted):
        if p[i] & 0xC0 != 0x80:
            return 0
    # Longer than need be, half of a surrogate pair, or beyond the last code point.
    if (p[0] == 0xE0 and p[1] < 0xA0) or (p[0] == 0xED and p[1] > 0x9F):
        return 0
    if (p[0] == 0xF0 and p[1] < 0x90) or (p[0] == 0xF4 and p[1] > 0x8F):
        return 0
    return wanted


cdef bint is_utf8(Slice text) noexcept nogil:
    cdef const uint8_t* p = text.p
    cdef size_t left = <size_t> text.n
    cdef uint64_t word
    cdef int n
    while left > 0:
        if left >= 8:
            memcpy(&word, p, 8)
            if word & HIGH_BITS == 0:
                p += 8
                left -= 8
                continue
        n = 1 if p[0] < 0x80 else sequence_bytes(p, left)
        if n == 0:
            return False
        p += n
        left -= n
    return True


# ---- keys and values

cdef int16_t key_number(Slice key) noexcept nogil:
    return load_i16(key.p) if key.n >= 2 else <int16_t> -1


cdef const char* read_commit_key(Slice key, CommitKey* out) noexcept nogil:
    cdef Cursor c
    cursor_init(&c, key.p, key.n)
    get_i16(&c)
    out.group = get_string(&c)
    out.topic = get_string(&c)
    out.partition = get_i32(&c)
    if c.bad:
        return "the key of a commit ends too early"
    if cursor_left(&c) > 0:
        return "bytes behind the key of a commit"
    if not is_utf8(out.group) or not is_utf8(out.topic):
        return "the key of a commit is not UTF-8"
    return NULL


cdef const char* read_tags(Cursor* c, CommitValue* out) noexcept nogil:
    """Tags ascend; those that Kafka 4.3 does not know are passed over."""
    cdef uint32_t _i
    cdef uint32_t count = get_tag_count(c)
    cdef uint32_t size
    cdef int64_t tag
    cdef int64_t before = -1
    for _i in range(count):
        tag = get_uvarint(c)
        size = get_uvarint(c)
        if c.bad or tag <= before or size > cursor_left(c):
            return "the tagged fields of a commit are out of order or too long"
        before = tag
        if tag != TOPIC_ID_TAG:
            skip(c, size)
        elif size != UUID_BYTES:
            return "the topic id of a commit is not 16 bytes long"
        else:
            out.topic_id = get_uuid(c)
    return NULL


cdef const char* read_commit_value(Slice value, bint legacy, CommitValue* out) noexcept nogil:
    cdef Cursor c
    cdef const char* wrong = NULL
    cdef int16_t version
    cursor_init(&c, value.p, value.n)
    version = get_i16(&c)
    if not c.bad and (version < 0 or version > (0 if legacy else COMMIT_VALUE_VERSION_MAX)):
        return "a commit of an unknown version"
    out.leader_epoch = -1
    out.expire_timestamp = -1
    out.topic_id = NULL
    out.offset = get_i64(&c)
    if version >= 3:
        out.leader_epoch = get_i32(&c)
    out.metadata = get_compact_string(&c) if version >= 4 else get_string(&c)
    out.commit_timestamp = get_i64(&c)
    if version == 1:
        out.expire_timestamp = get_i64(&c)
    if version >= 4:
        wrong = read_tags(&c, out)
    if wrong != NULL:
        return wrong
    if c.bad:
        return "a commit ends too early"
    if cursor_left(&c) > 0:
        return "bytes behind a commit"
    if not is_utf8(out.metadata):
        return "the metadata of a commit is not UTF-8"
    if out.topic_id != NULL and memcmp(out.topic_id, zero_uuid, UUID_BYTES) == 0:
        out.topic_id = NULL
    return NULL


cdef void put_commit_key(Writer* w, const CommitKey* key) noexcept nogil:
    put_i16(w, KEY_COMMIT)
    put_string(w, key.group.p, key.group.n)
    put_string(w, key.topic.p, key.topic.n)
    put_i32(w, key.partition)


cdef void put_commit_value(Writer* w, const CommitValue* value, int16_t version) noexcept nogil:
    put_i16(w, version)
    put_i64(w, value.offset)
    if version >= 3:
        put_i32(w, value.leader_epoch)
    if version >= 4:
        put_compact_string(w, value.metadata.p, value.metadata.n)
    else:
        put_string(w, value.metadata.p, value.metadata.n)
    put_i64(w, value.commit_timestamp)
    if version == 1:
        put_i64(w, value.expire_timestamp)
    if version >= 4 and value.topic_id == NULL:
        put_no_tags(w)
    elif version >= 4:
        put_uvarint(w, 1)
        put_uvarint(w, TOPIC_ID_TAG)
        put_uvarint(w, UUID_BYTES)
        put_raw(w, value.topic_id, UUID_BYTES)
