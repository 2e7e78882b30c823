"""Producer state of a partition: epochs, the last five batches of each producer, transactions,
snapshots.

`<20 digits>.snapshot`, big-endian: int16 version (1), uint32 CRC-32C of what follows, int32 count,
entries of
50 bytes: int64 producer id, int16 epoch, int32 last sequence, int64 last offset, int32 offset delta
(of the
last batch), int64 timestamp (ms), int32 coordinator epoch, int64 first offset of the ongoing
transaction (-1).
The number in the name is the offset up to which the log has been folded in.

`<20 digits>.txnindex`, entries of 34 bytes, big-endian: int16 version (0), int64 producer id, int64
first offset,
int64 last offset (of the marker), int64 last stable offset. One for each aborted transaction, by
last offset.

Not thread-safe: the lock of the log is held.
"""

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo

cdef enum:
    PRODUCER_BATCHES = 5

cdef enum ProducerOrigin:
    ORIGIN_CLIENT = 0               # sequence and epoch are checked
    ORIGIN_COORDINATOR = 1          # no sequences: the epoch is checked
    ORIGIN_REPLAY = 2               # has been checked before: recovery, journal, replication

ctypedef struct ProducerBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta

ctypedef struct Producer:
    int64_t id
    int64_t last_timestamp          # ms
    int64_t txn_first_offset        # of the ongoing transaction; -1: none
    int32_t coordinator_epoch
    int16_t epoch
    uint8_t first                   # ring of batches
    uint8_t count
    ProducerBatch batches[PRODUCER_BATCHES]

# ongoing, or complete with its marker at or above the high watermark
ctypedef struct Txn:
    int64_t producer_id
    int64_t first_offset
    int64_t last_offset             # of the marker; -1: ongoing

ctypedef struct Producers:
    Producer** slots                # open addressing, power of two
    int32_t capacity
    int32_t count
    Txn* txns                       # ascending by first offset
    int32_t txn_count
    int32_t txn_capacity
    int64_t map_end                 # offset up to which the log has been folded in
    int64_t snap_end                # offset of the newest snapshot
