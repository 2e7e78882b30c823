"""Topics and partitions of a producer, and where the records without a key go.

A partition has its deque of batches under its own lock. What is marked "sender" is touched on the
loop thread only. The sticky partition of a topic (KIP-794) is left once it has got batch.size
bytes and its batch is full, or twice as many; the next one is drawn by chance, less often the more
batches wait for it. Its two words are read without the lock: a race loses a few bytes' account.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.client_batch cimport ClientBatch
from kbroker.ext.posix cimport pthread_mutex_t

cdef struct Part:
    pthread_mutex_t lock
    Topic* topic
    int32_t index
    int32_t length                  # batches in the deque
    ClientBatch* head
    ClientBatch* tail
    bint listed                     # the sender knows of it; under the lock
    Part* next_fresh
    # Told by Python.
    int32_t leader                  # atomic: node id, -1 for none
    int32_t leader_epoch            # atomic
    int32_t txn                     # atomic: the last transaction that it was added to
    int32_t txn_wanted              # atomic: it is to be added to the one that is open
    # sender
    ClientBatch* flight             # by sequence
    int32_t in_flight               # requests
    int64_t producer_id
    int64_t known_producer_id       # the last one that its leader took a batch of
    int32_t next_sequence
    int32_t last_acked_sequence
    int64_t last_acked_offset
    int32_t unresolved_sequence     # the one after those whose outcome is unknown; -1
    int16_t producer_epoch
    bint rewrite                    # sequences begin anew with the next epoch
    bint waits_for_leader           # metadata was asked for

cdef struct Topic:
    pthread_mutex_t lock
    Topic* next
    uint8_t* name
    int32_t name_bytes
    int32_t count
    Part** parts                    # `count`; old arrays stay, see topic_grow
    void* retired
    uint8_t id[16]
    bint has_id
    int32_t sticky                  # -1: to be chosen
    int64_t produced                # bytes since it was
    uint32_t turn                   # of round robin
    int32_t loads_count             # 0: uniform
    int32_t loads_room
    int64_t* loads                  # cumulative frequencies (KIP-794) ...
    int32_t* loads_ids              # ... of these partitions
    int64_t used_ns                 # monotonic: when a batch was begun; a race loses little
    int32_t ratio_milli             # atomic: compressed bytes for 1000 plain ones, estimated

cdef Topic* topic_new(const uint8_t* name, int32_t n) noexcept nogil
# With its partitions, whose deques are empty.
cdef void topic_free(Topic* t) noexcept nogil
# False: no memory. Fewer than there are: nothing happens.
cdef bint topic_grow(Topic* t, int32_t count) noexcept nogil

# xorshift64*, never 0; a race between threads loses a number, no more.
cdef uint32_t chance_of(uint64_t* state) noexcept nogil
cdef int32_t sticky_of(Topic* t, uint64_t* chances) noexcept nogil
# Leave the sticky partition where it has got so many bytes; True: it is another now.
cdef bint sticky_moves(
    Topic* t, int32_t from_partition, int64_t at_least, uint64_t* chances
) noexcept nogil
# The queue lengths of the partitions that have a leader in time become a table of cumulative
# frequencies, the longest queue the rarest.
cdef void topic_loads(
    Topic* t, int64_t* lengths, const int32_t* ids, int32_t count, int32_t all_count
) noexcept nogil
