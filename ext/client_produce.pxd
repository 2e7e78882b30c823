"""Produce on the client's side, versions 3 to 13: one request for many partitions, its answer.

    request   transactional id, acks i16, timeout i32 ms,
              [topic: name (up to 12) or id (13); [partition i32, batch as bytes]]
    answer    [topic: name or id; [partition i32, error i16, base offset i64,
              append time i64 ms, log start offset i64 (5+),
              [record errors: index i32, text] and text (8+),
              tagged: current leader id i32 and epoch i32 (10+)]],
              throttle time i32 ms, tagged: node endpoints (10+)

From version 9 on flexible (KIP-482). KIP-467 brought the record errors, KIP-951 the leader,
KIP-516 the ids. A request borrows its batches; nothing of an answer is believed before all of it
was read, and an answer must tell of each partition that was asked about, and of no other.
"""
from libc.stddef cimport size_t
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.client_link cimport Call, Loop
from kbroker.ext.sockets cimport iovec_t
from kbroker.ext.wire cimport Slice

cdef enum:
    PRODUCE_KEY = 0
    PRODUCE_LOW = 3
    PRODUCE_HIGH = 13
    PRODUCE_TOPIC_IDS = 13

cdef struct Answer:                 # what a broker said of one partition; slices lie in the frame
    bint seen
    int16_t code
    int64_t base_offset
    int64_t append_time
    int64_t log_start
    int32_t faults_count
    const uint8_t* faults           # `faults_count` of them, sound
    Slice message
    int32_t leader
    int32_t leader_epoch

cdef struct ProduceCall:            # first member: the call that the link holds
    Call call
    ProduceCall* next               # of the same broker
    void* sender
    void* peer
    ClientBatch** batches           # sorted by topic
    Answer* answers
    iovec_t* pieces
    uint8_t* head
    int32_t count
    int32_t room
    int64_t bytes
    int64_t sent_ns
    int32_t throttle_ms

# Of at most `room` batches; NULL: no memory.
cdef ProduceCall* produce_new(int32_t room) noexcept nogil
cdef void produce_free(ProduceCall* call) noexcept nogil
# Sorts the batches and writes everything around them; False: no memory.
cdef bint produce_encode(
    ProduceCall* call, Loop* loop, int16_t version, int16_t acks, int32_t timeout_ms,
    Slice transactional_id
) noexcept nogil
# Fills `answers`; False where the answer is none to this request.
cdef bint produce_decode(ProduceCall* call, const uint8_t* p, size_t n) noexcept nogil
# The next record error at p of an answer that was read before.
cdef const uint8_t* produce_fault(
    const uint8_t* p, bint flexible, int32_t* index, Slice* message
) noexcept nogil
