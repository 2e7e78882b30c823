"""Fetch, versions 4 to 18, as a consumer speaks it.

    request: replica id (to 14), max wait, min bytes, max bytes, isolation level,
             session id and epoch (from 7), topics [name, or id from 13; partitions [index, leader
             epoch (9), offset, last fetched epoch (12), log start offset (5), max bytes]],
             forgotten topics (7) [name or id, indexes], rack (11)
    answer:  throttle time, error and session id (7), topics [partitions [index, error, high
             watermark, last stable offset, log start offset (5), aborted transactions [producer
             id, first offset], preferred read replica (11), records; tag 1: the current leader,
             KIP-951]]

From version 12 on both are flexible (KIP-482).
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.client_fetch_state cimport Fetch, Session
from kbroker.ext.wire cimport Cursor, Slice

cdef struct FetchHead:              # of an answer
    int32_t throttle_ms
    int16_t error
    int32_t session_id
    int32_t topics

cdef struct FetchPart:              # of an answer
    int32_t partition
    int16_t error
    int64_t high_watermark
    int64_t last_stable_offset
    int64_t log_start_offset
    const uint8_t* aborted          # pairs of int64, aborted_bytes apart
    int32_t aborted_count
    int32_t aborted_bytes
    int32_t preferred_replica
    int32_t leader                  # -1: not told
    int32_t leader_epoch
    Slice records                   # n -1: null

# Bytes that the body takes at most, for the parts `wanted` and those to be forgotten.
cdef int64_t fetch_body_bytes(const Fetch* f) noexcept nogil
# The body behind the header, `p` has room; its end. What it tells is noted in the parts.
cdef uint8_t* put_fetch(Fetch* f, Session* s, uint8_t* p, uint8_t* end) noexcept nogil
cdef void get_head(Cursor* c, int16_t version, FetchHead* out) noexcept nogil
cdef void get_topic(
    Cursor* c, int16_t version, Slice* name, const uint8_t** topic_id, int32_t* partitions
) noexcept nogil
cdef void get_part(Cursor* c, int16_t version, FetchPart* out) noexcept nogil
# All of it that stands before the records, whose bytes it gives, -1: null.
cdef int64_t get_part_front(Cursor* c, int16_t version, FetchPart* out) noexcept nogil
