"""One batch through the cleaner: as it is, rewritten with what stays, emptied, or gone.

Rules of Apache Kafka 4.3 for magic 2, and the bytes that it would write:

- A record stays when it is the last of its key in what is mapped, or lies beyond it; one without a
  key does not. A tombstone goes once the delete horizon of its batch has passed.
- The delete horizon (ms) is set when a batch with a tombstone, or with the marker of a transaction
  of which nothing is left, is first met: attribute bit 6, base timestamp = horizon, the
  timestamp deltas following.
- A batch that is rewritten keeps its base and last offset, its producer fields and its codec; its
  max timestamp is the one of what stays.
- An emptied batch is kept, as a bare header, when the state of a producer stands on it or when
  it is the last of the range.

Belongs to one thread. Functions that return int give LOG_OK or an error of the log; LOG_CORRUPT
for what is no batch of sound records.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport BatchInfo
from kbroker.ext.cleaner_map cimport OffsetMap
from kbroker.ext.cleaner_output cimport Output
from kbroker.ext.cleaner_txns cimport LastRecords, Txns
from kbroker.ext.compression_buffer cimport Buffer

cdef enum:
    FILTER_NO_CODEC = -100              # the codec's library is not on this machine
    FILTER_NO_ROOM = -101               # the disk: see `error`

ctypedef struct Counts:
    int64_t mapped_bytes
    int64_t mapped_records
    int64_t read_bytes
    int64_t read_records
    int64_t written_bytes
    int64_t written_records
    int64_t keyless                     # records that a compacted topic should not have

ctypedef struct Filter:
    OffsetMap* map
    Txns txns
    LastRecords producers
    Output* output
    int64_t now_ms
    int64_t delete_retention_ms
    int64_t end_offset                  # of the range: one beyond its last offset
    int error                           # errno of the last FILTER_NO_ROOM
    Counts counts
    Buffer plain                        # records decompressed
    Buffer built                        # a batch rewritten
    Buffer packed                       # ... and compressed again
    uint8_t* kept                       # a bit for each record of the batch at hand
    int64_t kept_room                   # bytes

cdef void filter_free(Filter* f) noexcept nogil
# First pass: put the keys of a whole batch into the map, those from `start` on. *full: it took not
# all of them.
cdef int filter_map(Filter* f, const uint8_t* p, const BatchInfo* info, int64_t start,
                    bint* full) noexcept nogil
# Second pass: what stays of a whole batch goes to the output.
cdef int filter_batch(Filter* f, const uint8_t* p, const BatchInfo* info) noexcept nogil
