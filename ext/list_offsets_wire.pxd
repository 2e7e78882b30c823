"""ListOffsets versions 1 to 11 on the wire: reading the request, writing the response.

Versions: 2 isolation level and throttle time; 4 leader epochs; 6 flexible; 7, 8, 9 and 11 add
timestamps below zero; 10 a timeout, which nothing here takes long enough for.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint32_t

from kbroker.ext.log_find cimport TimestampOffset
from kbroker.ext.wire cimport Cursor, Slice, Writer

cdef enum:
    LEADER_EPOCHS = 4
    # Of a partition in the response, from its error code on; a leader epoch follows the offset.
    TIMESTAMP_AT = 2
    OFFSET_AT = 10

ctypedef struct ListOffsetsHead:
    int32_t replica_id              # -1: a consumer
    int32_t topics_count
    int8_t isolation                # 1: read_committed

ctypedef struct ListOffsetsTopic:
    Slice name                      # in the request's own bytes
    int32_t partitions_count

ctypedef struct ListOffsetsTarget:
    int32_t partition
    int32_t current_leader_epoch    # -1: not told
    int64_t timestamp

cdef void list_offsets_read_head(Cursor* c, int16_t version, ListOffsetsHead* out) noexcept nogil
cdef void list_offsets_read_topic(Cursor* c, int16_t version, ListOffsetsTopic* out) noexcept nogil
cdef void list_offsets_read_partition(Cursor* c, int16_t version,
                                      ListOffsetsTarget* out) noexcept nogil
cdef void list_offsets_end_topic(Cursor* c, int16_t version) noexcept nogil
# The timeout and the request's tagged fields.
cdef void list_offsets_read_tail(Cursor* c, int16_t version) noexcept nogil

# What the answer takes at most: of the whole, and of a topic with its partitions.
cdef uint32_t list_offsets_head_bytes_max() noexcept nogil
cdef uint32_t list_offsets_topic_bytes_max(const ListOffsetsTopic* topic) noexcept nogil
cdef void list_offsets_put_head(Writer* w, int16_t version, int32_t topics_count) noexcept nogil
# Into the head that was put at the beginning of the body.
cdef void list_offsets_put_throttle(Writer* w, int16_t version, int32_t throttle_ms) noexcept nogil
cdef void list_offsets_put_topic(Writer* w, int16_t version, const Slice* name,
                                 int32_t partitions_count) noexcept nogil
cdef void list_offsets_put_partition(Writer* w, int16_t version, int32_t partition, int16_t error,
                                     const TimestampOffset* found) noexcept nogil
# The tagged fields of a topic or of the whole response: none.
cdef void list_offsets_put_end(Writer* w, int16_t version) noexcept nogil
