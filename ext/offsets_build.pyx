"""Records of committed offsets as `__consumer_offsets` takes them (see offsets_record.pxd).

A commit is what the control thread writes most often, so these two are written by hand: half a
microsecond for both, where the codec that reads the schemas takes fifteen.
"""
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.string cimport memcmp

from kbroker.ext.offsets_record cimport (
    COMMIT_KEY_BYTES_MIN, COMMIT_VALUE_BYTES_MAX, COMMIT_VALUE_VERSION_MAX, UUID_BYTES, CommitKey,
    CommitValue, put_commit_key, put_commit_value,
)
from kbroker.ext.wire cimport STRING_BYTES_MAX, Slice, Writer, writer_init

cdef uint8_t[<int> UUID_BYTES] zero_uuid


cdef int text_slice(str text, Slice* out) except -1:
    """Borrowed from the text, which keeps its UTF-8 form."""
    cdef Py_ssize_t n
    if text is None:
        raise TypeError("a string may not be None")
    out.p = <const uint8_t*> PyUnicode_AsUTF8AndSize(text, &n)
    if n > STRING_BYTES_MAX:
        raise ValueError(f"a string of {n} bytes")
    out.n = <int32_t> n
    return 0


def commit_key(str group, str topic, int32_t partition) -> bytes:
    """The key of a committed offset. Raises ValueError for a string over 32,767 bytes."""
    cdef CommitKey key
    cdef Writer w
    cdef Py_ssize_t size
    text_slice(group, &key.group)
    text_slice(topic, &key.topic)
    key.partition = partition
    size = COMMIT_KEY_BYTES_MIN + key.group.n + key.topic.n
    made = PyBytes_FromStringAndSize(NULL, size)
    writer_init(&w, <uint8_t*> PyBytes_AS_STRING(made), <size_t> size)
    put_commit_key(&w, &key)
    return made


def commit_value(
    int64_t offset, int32_t leader_epoch, str metadata, int64_t commit_timestamp,
    int64_t expire_timestamp, bytes topic_id, int version,
) -> bytes:
    """The value, in a version of 0 to 4; what that version has no field for is left out. The
    topic id is 16 bytes, zeros for none."""
    cdef CommitValue value
    cdef uint8_t room[COMMIT_VALUE_BYTES_MAX + <int> STRING_BYTES_MAX]
    cdef Writer w
    if not 0 <= version <= COMMIT_VALUE_VERSION_MAX:
        raise ValueError(f"a commit of version {version}")
    if topic_id is None or len(topic_id) != UUID_BYTES:
        raise ValueError("a topic id has 16 bytes")
    text_slice(metadata, &value.metadata)
    value.offset = offset
    value.leader_epoch = leader_epoch
    value.commit_timestamp = commit_timestamp
    value.expire_timestamp = expire_timestamp
    value.topic_id = <const uint8_t*> <const char*> topic_id
    if memcmp(value.topic_id, zero_uuid, UUID_BYTES) == 0:
        value.topic_id = NULL
    writer_init(&w, room, sizeof(room))
    put_commit_value(&w, &value, <int16_t> version)
    return room[:w.p - room]
