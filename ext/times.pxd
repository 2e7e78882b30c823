"""How long things take: histograms that one thread writes and any may read as they are.

A bucket for each power of two: bucket i counts values below 2^(10 + i), so a nanosecond histogram
goes from 1.024 us to 69 s and one of bytes from 1 KiB to 64 GiB; the last bucket has the rest. What
a reader sees is never torn, and may lack what is being counted at this moment.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint16_t, uint64_t

from kbroker.ext.atomics cimport atomic_tally_i64
from kbroker.ext.bits cimport highest_bit

cdef enum:
    TIME_BUCKETS = 28
    FIRST_BOUND_BITS = 10
    VERSIONS_COUNTED = 32           # versions of an API beyond it count as the last
    SLOW_KEPT = 32                  # slow requests of a thread that wait to be told; power of two
    MARKS_KEPT = 256                # of a thread, for the next answers
    TIMED_EVERY = 8                 # of requests that one read brought

# As Apache Kafka splits them: until a handler begins; in handlers; waiting for something else; the
# answer waiting to be sent; being sent; and all of it.
cdef enum:
    PHASE_QUEUE
    PHASE_LOCAL
    PHASE_REMOTE
    PHASE_RESPONSE
    PHASE_SEND
    PHASE_TOTAL
    PHASES

cdef struct Histogram:
    int64_t sum
    int64_t buckets[TIME_BUCKETS]

cdef struct ApiTimes:               # of one API, on one thread
    Histogram phases[PHASES]
    int64_t versions[VERSIONS_COUNTED]      # requests
    int64_t bytes                   # of requests
    int64_t waiting                 # that have no answer yet
    int64_t untimed                 # since the last that was timed, which counts for them

cdef struct Times:                  # ns, monotonic; 0: not yet
    int64_t weight                  # counts for so many requests; 0: is not timed
    int64_t received
    int64_t begun                   # the handler
    int64_t done                    # ... returned
    int64_t ready                   # the answer is written and may go
    int64_t flushed                 # the first send that could take it begins

# An answer on its way out: it is sent when `at` bytes of the connection's stream are.
cdef struct Mark:
    Mark* next
    uint64_t at
    Times times
    int32_t correlation_id
    int16_t api_key
    int16_t api_version

cdef struct Slow:                   # a slow request, for the log
    int64_t phases[PHASES]
    int32_t correlation_id
    int16_t api_key
    int16_t api_version
    uint64_t connection_id
    uint8_t address[16]
    uint16_t port


cdef inline void histogram_add(Histogram* histogram, int64_t value,
                               int64_t weight) noexcept nogil:
    cdef int index = highest_bit(<uint64_t> (value | 1)) + 1 - FIRST_BOUND_BITS
    if value < 0:                   # clocks of two processors, some ns apart
        value = index = 0
    if index < 0:
        index = 0
    elif index >= TIME_BUCKETS:
        index = TIME_BUCKETS - 1
    atomic_tally_i64(&histogram.sum, value * weight)
    atomic_tally_i64(&histogram.buckets[index], weight)
