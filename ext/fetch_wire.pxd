"""Fetch versions 4 to 18 on the wire: reading the request, sizing and writing the response.

Versions: 5 log start offset; 7 sessions (KIP-227); 9 current leader epoch; 11 rack id and
preferred read replica; 12 flexible, last fetched epoch, diverging epoch (tagged); 13 topic ids;
15 replica id moves into a tagged field; 16 node endpoints (tagged, never sent here); 17 and 18
add tagged fields of replicas, skipped here.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.log_read cimport AbortedTxn, ReadSlice
from kbroker.ext.log_state cimport Log
from kbroker.ext.purgatory cimport Watch
from kbroker.ext.sessions cimport FetchTarget, SessionPartition
from kbroker.ext.wire cimport Cursor, Writer

ctypedef struct FetchHead:
    int32_t replica_id              # -1: a consumer
    int32_t max_wait_ms
    int32_t min_bytes
    int32_t bytes_max
    int32_t session_id
    int32_t session_epoch
    int32_t topics_count
    int8_t isolation                # 1: read_committed

# One partition of a fetch: what is asked, what was found.
ctypedef struct FetchPartition:
    FetchTarget target              # its name is owned by the fetch
    SessionPartition* cached        # valid while the session's generation is the fetch's
    Log* log                        # a reference; NULL: not found
    int16_t error
    bint denied                     # the client may not read it
    bint held                       # its log is locked for long: nothing can be told of it now
    bint respond                    # it stands in the response
    bint watching
    bint region                     # its records go by sendfile
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start
    int64_t acknowledged            # the end of what was when the request came
    ReadSlice slice                 # holds a segment while length > 0
    AbortedTxn* aborted             # malloc'ed
    int32_t aborted_count           # -1: null
    int32_t diverging_epoch         # -1: none
    int64_t diverging_end
    Watch watch

cdef void fetch_read_head(Cursor* c, int16_t version, FetchHead* out) noexcept nogil
cdef int32_t fetch_read_topic(Cursor* c, int16_t version, FetchTarget* out) noexcept nogil
cdef void fetch_read_partition(Cursor* c, int16_t version, FetchTarget* out) noexcept nogil
cdef int32_t fetch_read_forgotten_count(Cursor* c, int16_t version) noexcept nogil
cdef int32_t fetch_read_forgotten_topic(Cursor* c, int16_t version,
                                        FetchTarget* out) noexcept nogil
cdef void fetch_end_struct(Cursor* c, int16_t version) noexcept nogil
# Rack id and the request's tagged fields; sets head.replica_id where the version has it there.
cdef void fetch_read_tail(Cursor* c, int16_t version, FetchHead* head) noexcept nogil

cdef uint32_t fetch_partition_bytes_max(const FetchPartition* partition) noexcept nogil
cdef void fetch_put_head(Writer* w, int16_t version, int16_t error, int32_t session_id,
                         int32_t topics_count, int32_t throttle_ms) noexcept nogil
cdef void fetch_put_topic(Writer* w, int16_t version, const FetchTarget* target,
                          int32_t partitions_count) noexcept nogil
# Up to and with the length of the records, which follow.
cdef void fetch_put_partition(Writer* w, int16_t version,
                              const FetchPartition* partition) noexcept nogil
# After the records.
cdef void fetch_put_partition_tags(Writer* w, int16_t version, int32_t node_id,
                                   const FetchPartition* partition) noexcept nogil
cdef void fetch_put_end(Writer* w, int16_t version) noexcept nogil
