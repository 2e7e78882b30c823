"""Produce versions 3 to 13 on the wire: reading the request in place, writing the response.

Versions: 5 log start offset; 8 record errors and an error message; 9 flexible; 10 current leader
(tagged, only with NOT_LEADER_OR_FOLLOWER: never sent here); 13 topic ids instead of names.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.batch cimport BadRecord, BatchInfo, BatchRules
from kbroker.ext.log_state cimport Log
from kbroker.ext.wire cimport Cursor, Slice, Writer

cdef enum:
    # Of one request, all partitions together: a record of 7 bytes, or of none where it was
    # compressed well, makes 160 bytes of answer. Kafka has no bound; nobody reads so many.
    BAD_RECORDS_LISTED_MAX = 10000

ctypedef struct ProduceHead:
    Slice transactional_id          # n = -1: null
    int16_t acks
    int32_t timeout_ms
    int32_t topics_count

ctypedef struct ProduceTopic:
    Slice name                      # empty where the version has an id
    const uint8_t* id               # NULL where the version has a name
    int32_t partitions_count

# Records of a batch that are refused for what they are, not for how they are written.
ctypedef struct BadRecords:
    BadRecord* list                 # malloc'ed; NULL: none
    int32_t count

# What became of one partition; written by execute, read by the response and by the wait.
ctypedef struct PartitionResult:
    int32_t partition
    int16_t error
    BadRecords bad
    int64_t base_offset
    int64_t log_append_time
    int64_t log_start
    int64_t end_offset              # of the appended batch; -1: nothing to wait for
    Log* log                        # borrowed
    const char* message             # static; NULL: none
    Slice records
    uint8_t* error_at               # where the response holds `error`

cdef void read_head(Cursor* c, int16_t version, ProduceHead* out) noexcept nogil
cdef void read_topic(Cursor* c, int16_t version, ProduceTopic* out) noexcept nogil
cdef void read_partition(Cursor* c, int16_t version, int32_t* partition,
                         Slice* records) noexcept nogil
cdef void end_topic(Cursor* c, int16_t version) noexcept nogil

# Bytes that the response takes at most.
cdef uint32_t response_bytes_max(uint32_t request_bytes, const PartitionResult* results,
                                 uint32_t count) noexcept nogil
# The body, by walking the request again for its topics.
cdef void write_response(Writer* w, int16_t version, const uint8_t* body, const uint8_t* end,
                         PartitionResult* results, int32_t throttle_ms) noexcept nogil

# The bad records among those at [records, end), which are not compressed, `left[0]` at most; what
# is found is taken off it.
cdef void bad_records_find(const uint8_t* records, const uint8_t* end, const BatchRules* rules,
                           const BatchInfo* info, int32_t* left, BadRecords* out) noexcept nogil
