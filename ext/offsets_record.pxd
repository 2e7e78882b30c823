"""Committed offsets as `__consumer_offsets` stores them: read and written (big endian).

    key      int16 0 or 1 (as what commits were before Kafka 0.9 and are now); string group;
             string topic; int32 partition
    value    int16 version, then
      0      int64 offset; string metadata; int64 commit timestamp
      1      ... and int64 expire timestamp
      2      as 0
      3      int64 offset; int32 leader epoch; string metadata; int64 commit timestamp
      4      as 3 with a compact string, then tagged fields, of which 0 is the topic id (uuid)

Key 0 has values of version 0 only. Strings are UTF-8 and never null. Timestamps are in ms. What is
read is borrowed from the record. Free of state.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.wire cimport Slice, Writer

cdef enum:
    KEY_LEGACY_COMMIT = 0
    KEY_COMMIT = 1
    COMMIT_VALUE_VERSION_MAX = 4
    UUID_BYTES = 16

ctypedef struct CommitKey:
    Slice group
    Slice topic
    int32_t partition

ctypedef struct CommitValue:
    int64_t offset
    int64_t commit_timestamp
    int64_t expire_timestamp        # -1: none
    int32_t leader_epoch            # -1: none
    Slice metadata
    const uint8_t* topic_id         # NULL: none, or all zeros

# Bytes of a key, and of a value of version 4, besides its strings and the lengths before them.
cdef enum:
    COMMIT_KEY_BYTES_MIN = 2 + 2 + 2 + 4
    COMMIT_VALUE_BYTES_MAX = 2 + 8 + 4 + 3 + 8 + 8 + 1 + 2 + UUID_BYTES

# The number that a coordinator's key begins with; -1: too short for one.
cdef int16_t key_number(Slice key) noexcept nogil

# NULL, or what is wrong, in words.
cdef const char* read_commit_key(Slice key, CommitKey* out) noexcept nogil
cdef const char* read_commit_value(Slice value, bint legacy, CommitValue* out) noexcept nogil

# With room for COMMIT_KEY_BYTES_MIN and the two strings; COMMIT_VALUE_BYTES_MAX and the metadata.
# A string over 32767 bytes sets w.full. Versions 1 (where something expires) to 4.
cdef void put_commit_key(Writer* w, const CommitKey* key) noexcept nogil
cdef void put_commit_value(Writer* w, const CommitValue* value, int16_t version) noexcept nogil
