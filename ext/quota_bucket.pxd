"""A bucket: what has been used over sampled windows, and how long to wait for more of it.

The windows are those of Apache Kafka's Rate: `samples` of `window_ms` each and the present one.
Who began later is taken to have been there all the time, so that much may come at once in the
beginning. Whatever is recorded counts, then the rate is compared with the limit; above it the
answer says how long nothing may come until the rate is back there. Times are of the monotonic
clock. A bucket has a lock of its own.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint64_t

from kbroker.ext.posix cimport pthread_mutex_t

# Whose limit, and of what (quotas.pxd); compared byte by byte.
cdef struct QuotaKey:
    uint64_t high               # hash of the client id, or an address
    uint64_t low
    int32_t user
    int16_t kind
    int16_t client              # ClientPart

cdef struct Sampling:
    int32_t samples
    int64_t window_ms

cdef struct Window:
    int64_t begun_ms
    int64_t last_ms             # when something was last recorded in it
    double sum

cdef struct Bucket:
    Bucket* next
    QuotaKey key
    int64_t refs                # of the table's owner
    int64_t used_ms             # under `lock`, as all that follows
    pthread_mutex_t lock
    double limit
    int32_t at                  # of the present window
    int32_t count               # windows begun
    Window windows[1]           # one more than samples

cdef Bucket* bucket_new(const Sampling* sampling, double limit) noexcept nogil
cdef void bucket_free(Bucket* bucket) noexcept nogil
cdef void bucket_limit(Bucket* bucket, double limit) noexcept nogil
# Record an amount; how long to wait until the rate is at its limit, ms.
cdef int64_t bucket_take(const Sampling* sampling, Bucket* bucket, double amount,
                         int64_t now_ms) noexcept nogil
# Record without asking; below 0: take back.
cdef void bucket_add(const Sampling* sampling, Bucket* bucket, double amount,
                     int64_t now_ms) noexcept nogil
