"""Brokers that a producer sends to, and the state of its sender (see client_sender).

What is not said to be anybody's is touched on the loop thread only.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.client_accumulator cimport Accumulator
from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.client_link cimport Driver
from kbroker.ext.client_topic cimport Part

cdef enum:
    PEERS_MAX = 1024                # brokers that one producer ever meets
    NO_PRODUCER_ID = -1
    RETRIABLE_CODES = 256           # error codes 0..255 have a word
    TXN_LOST = -1                   # a batch that no broker had an error for: it came too late
    WISH_AGAIN_NS = 20000000        # Python is reminded of what is missing

cdef enum SenderWish:               # what Python is asked to do, told by EVENT_SENDER
    WISH_METADATA = 1               # leaders of WISHED topics
    WISH_PRODUCER_ID = 2
    WISH_CALLBACKS = 4              # batches with callbacks have their outcome
    WISH_LINK = 8                   # a broker that leads partitions has no link
    WISH_DROP = 16                  # a link whose answers are no answers
    WISH_PARTITIONS = 32            # partitions that are to become part of the transaction

cdef enum:
    EVENT_SENDER = 16               # the first of a driver's; owner NULL

cdef struct Peer:                   # a broker, by its node id
    int32_t node
    int32_t link                    # atomic; -1: none
    int16_t version                 # of Produce, told with the link; atomic
    bint drop                       # wish: the link lies
    # sender
    bint ready                      # in this turn
    int32_t in_flight
    void* calls                     # ProduceCalls of it that are on their way
    int64_t throttled_until
    int64_t ready_ns                # partitioner.availability.timeout.ms: last had something to
    int64_t drained_ns              # send, last could send it
    int64_t pace_ns                 # since when the next one holds
    int64_t quickest_ns             # answer since then ...
    int64_t quickest_before_ns      # ... and in the time before

cdef struct Sender:
    Accumulator* a
    Driver* driver
    Peer* peers[PEERS_MAX]
    int32_t peers_count             # atomic; grows only
    Part** active                   # partitions that have batches
    int32_t active_count
    int32_t active_room
    int32_t cursor                  # where the next drain begins
    int64_t loads_due_ns
    int64_t expiry_ns               # no batch expires before
    # Producer id, epoch: -1 where there is none.
    int64_t producer_id
    int16_t producer_epoch
    bint bump_wanted
    int32_t unresolved              # partitions with an unresolved sequence
    int32_t rewrites                # partitions with `rewrite`
    # Transactions, in whose batches errors are not mended here: the first one is kept, and whoever
    # ends the transaction sees to the epoch.
    bint transactional
    bint adds_partitions            # Produce adds them to the transaction (KIP-890)
    uint8_t* transactional_id       # owned
    int32_t transactional_id_bytes
    int32_t txn                     # atomic: the number of the one that is open, or was last
    int32_t txn_closed              # atomic: none is open, or it has failed: nothing more is taken
    int32_t txn_error               # atomic: of the first batch that failed in it; TXN_LOST
    int32_t txn_unsure              # atomic: what was sent may leave a gap in the sequences
    # To and from Python, under the accumulator's lock.
    int64_t told_producer_id
    int16_t told_producer_epoch
    int16_t told_error              # of InitProducerId, fatal
    bint told
    int64_t purges_asked            # under the accumulator's lock
    int64_t purges_done             # atomic
    bint purge_queued
    bint purge_flying
    ClientBatch* settled            # see settled_put, in the order of their outcomes
    ClientBatch* settled_tail
    int32_t wishes                  # atomic, bits of SenderWish
    int32_t event_posted            # atomic
    int32_t fatal_code              # atomic; 0: none
    uint8_t retriable[RETRIABLE_CODES]  # by Kafka's table
    int64_t metadata_asked_ns

cdef void sender_init(Sender* s, Accumulator* a, Driver* driver) noexcept nogil
cdef void sender_destroy(Sender* s) noexcept nogil

# Any thread, one at a time (the GIL). NULL: no memory, or too many.
cdef Peer* sender_peer(Sender* s, int32_t node) noexcept nogil
cdef Peer* peer_of(Sender* s, int32_t node) noexcept nogil
# Any thread: asks Python for something.
cdef void sender_wish(Sender* s, int32_t wish) noexcept nogil
# The same, but for what Python was asked a moment ago; loop thread.
cdef void sender_wish_slowly(Sender* s, int32_t wish) noexcept nogil

# An outcome that Python is told of, with a reference: of a batch with callbacks its own, and of one
# that is `unseen` its root's.
cdef void settled_put(Sender* s, ClientBatch* b) noexcept nogil
# The oldest with its reference, or NULL.
cdef ClientBatch* settled_take(Sender* s) noexcept nogil
