"""What the caller's thread fills and the sender drains: a deque of batches for each partition.

Locks, in this order, none held while another thread is waited for: a partition's (its deque and
open batch), a topic's (the sticky partition), the accumulator's (list of all batches without an
outcome, partitions that the sender has not seen). The pool's own lock stands below all of them.
Topics and partitions live as long as the accumulator.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from kbroker.ext.client_batch cimport ClientBatch, Rec
from kbroker.ext.client_memory cimport MemoryPool
from kbroker.ext.client_topic cimport Part, Topic
from kbroker.ext.posix cimport pthread_cond_t, pthread_mutex_t

cdef enum:
    APPEND_OK = 0                   # otherwise MEMORY_* or one of these
    APPEND_TOO_LARGE = -10          # over max.request.size or buffer.memory
    APPEND_CLOSED = -11
    APPEND_NO_PARTITION = -12

cdef struct Settings:               # set once
    int64_t batch_bytes
    int64_t linger_ns
    int64_t delivery_ns
    int64_t request_timeout_ns
    int64_t request_bytes_max
    int64_t retry_ns
    int64_t retry_max_ns
    int64_t availability_ns         # 0: off
    int64_t retries
    int32_t in_flight_max
    int32_t codec
    int32_t level
    int16_t acks
    bint idempotent
    bint adaptive
    bint ignore_keys
    int32_t way                     # PARTITION_BY_*

cdef struct Totals:                 # atomic, for metrics
    int64_t records
    int64_t record_bytes
    int64_t batches
    int64_t requests
    int64_t request_bytes
    int64_t retries
    int64_t errors                  # records
    int64_t splits
    int64_t throttle_ms
    int64_t latency_ns
    int64_t latency_ns_max
    int64_t acked                   # records

cdef struct Accumulator:
    MemoryPool pool
    Settings settings
    pthread_mutex_t lock
    pthread_cond_t emptied          # some batch got its outcome
    Topic* topics
    Part* fresh
    ClientBatch* all_head
    ClientBatch* all_tail
    int64_t serial
    int64_t flushed_serial          # no batch up to here waits for its linger; atomic
    int32_t waiting                 # atomic: threads in accumulator_flushed
    int32_t closed                  # atomic: nothing more is taken
    int32_t kicked                  # atomic: the sender is to look again
    int64_t sleeps_until            # atomic: the sender's next turn; 0: it is at work
    void (*wake)(void* owner) noexcept nogil
    void* wake_owner
    uint64_t chance                 # state of the random numbers; races do no harm
    Totals totals

cdef void accumulator_init(Accumulator* a, const Settings* settings) noexcept nogil
# Nobody appends, sends or waits any more.
cdef void accumulator_destroy(Accumulator* a) noexcept nogil

# NULL: no memory.
cdef Topic* accumulator_topic(Accumulator* a, const uint8_t* name, int32_t n) noexcept nogil

# partition -1: the sticky one. Where memory is short: waits until deadline_ns, 0 not at all. With
# APPEND_OK the caller holds a reference of *out.
cdef int accumulator_append(
    Accumulator* a, Topic* t, int32_t partition, const Rec* rec, int64_t deadline_ns,
    ClientBatch** out, int32_t* index,
) noexcept nogil
# The first of n records as accumulator_append does, and as many of those behind it as fit into the
# same batch and belong there. Their number, or APPEND_*, MEMORY_*.
cdef int32_t accumulator_append_run(
    Accumulator* a, Topic* t, int32_t partition, const Rec* recs, int32_t n, int64_t deadline_ns,
    ClientBatch** out, int32_t* index,
) noexcept nogil
# The partition of a record by the producer's way; -1: the sticky one.
cdef int32_t accumulator_partition(
    Accumulator* a, Topic* t, const uint8_t* key, int32_t n
) noexcept nogil

# The sender looks again; at once where `now` is set.
cdef void accumulator_kick(Accumulator* a, bint now) noexcept nogil
# A batch into the list of all, out of it.
cdef void accumulator_track(Accumulator* a, ClientBatch* b) noexcept nogil
# Batches without an outcome.
cdef int64_t accumulator_pending(Accumulator* a) noexcept nogil
cdef void accumulator_forget(Accumulator* a, ClientBatch* b) noexcept nogil
# Nothing is taken any more, so that a flush is of all that ever was. Who waits for memory is told.
cdef void accumulator_close(Accumulator* a) noexcept nogil
# Sends all that was appended before. Returns what `accumulator_flushed` takes, which waits until
# all of that has its outcome; False: not until deadline_ns.
cdef int64_t accumulator_flush(Accumulator* a) noexcept nogil
cdef bint accumulator_flushed(Accumulator* a, int64_t serial, int64_t deadline_ns) noexcept nogil
# The size of the pieces that batches of a topic get.
cdef int64_t piece_bytes(Accumulator* a, Topic* t) noexcept nogil
