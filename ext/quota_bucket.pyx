"""What a client has used lately (see quota_bucket.pxd)."""
from libc.math cimport floor
from libc.stdlib cimport calloc, free

from kbroker.ext.posix cimport (
    pthread_mutex_destroy, pthread_mutex_init, pthread_mutex_lock, pthread_mutex_unlock,
)

cdef enum:
    WAIT_MS_MAX = 2147483647    # what an answer can tell


cdef Bucket* bucket_new(const Sampling* sampling, double limit) noexcept nogil:
    cdef Bucket* bucket = <Bucket*> calloc(
        1, sizeof(Bucket) + <size_t> sampling.samples * sizeof(Window))
    if bucket != NULL:
        pthread_mutex_init(&bucket.lock, NULL)
        bucket.limit = limit
    return bucket


cdef void bucket_free(Bucket* bucket) noexcept nogil:
    if bucket != NULL:
        pthread_mutex_destroy(&bucket.lock)
        free(bucket)


cdef void bucket_limit(Bucket* bucket, double limit) noexcept nogil:
    pthread_mutex_lock(&bucket.lock)
    bucket.limit = limit
    pthread_mutex_unlock(&bucket.lock)


cdef inline void begin(Window* window, int64_t now_ms) noexcept nogil:
    window.begun_ms = now_ms
    window.last_ms = now_ms
    window.sum = 0


cdef void record(const Sampling* sampling, Bucket* bucket, double amount,
                 int64_t now_ms) noexcept nogil:
    cdef Window* window = &bucket.windows[bucket.at]
    if bucket.count == 0:
        begin(window, now_ms)
        bucket.count = 1
    elif now_ms - window.begun_ms >= sampling.window_ms:
        bucket.at = (bucket.at + 1) % (sampling.samples + 1)
        bucket.count = max(bucket.count, bucket.at + 1)
        window = &bucket.windows[bucket.at]
        begin(window, now_ms)
    window.last_ms = now_ms
    window.sum += amount
    bucket.used_ms = now_ms


cdef int64_t wait_of(const Sampling* sampling, Bucket* bucket, int64_t now_ms) noexcept nogil:
    """The time after which the rate is at its limit, when nothing comes; 0: it is not above."""
    cdef Window* window
    cdef int64_t begun_ms = now_ms
    cdef int64_t elapsed_ms, missing
    cdef double sum = 0
    cdef double rate, wait_ms
    cdef int32_t i
    for i in range(bucket.count):
        window = &bucket.windows[i]
        if now_ms - window.last_ms >= sampling.samples * sampling.window_ms:
            begin(window, now_ms)
        sum += window.sum
        begun_ms = min(begun_ms, window.begun_ms)
    elapsed_ms = now_ms - begun_ms
    missing = sampling.samples - 1 - elapsed_ms // sampling.window_ms
    if missing > 0:
        elapsed_ms += missing * sampling.window_ms
    elapsed_ms = max(elapsed_ms, <int64_t> 1)
    rate = sum * 1000 / <double> elapsed_ms
    if not rate > bucket.limit:
        return 0
    wait_ms = (rate - bucket.limit) / bucket.limit * <double> elapsed_ms
    return WAIT_MS_MAX if wait_ms >= WAIT_MS_MAX else <int64_t> floor(wait_ms + 0.5)


cdef int64_t bucket_take(const Sampling* sampling, Bucket* bucket, double amount,
                         int64_t now_ms) noexcept nogil:
    cdef int64_t wait_ms
    pthread_mutex_lock(&bucket.lock)
    now_ms = max(now_ms, bucket.used_ms)        # another thread's clock may be ahead
    record(sampling, bucket, amount, now_ms)
    wait_ms = wait_of(sampling, bucket, now_ms)
    pthread_mutex_unlock(&bucket.lock)
    return wait_ms


cdef void bucket_add(const Sampling* sampling, Bucket* bucket, double amount,
                     int64_t now_ms) noexcept nogil:
    pthread_mutex_lock(&bucket.lock)
    record(sampling, bucket, amount, max(now_ms, bucket.used_ms))
    pthread_mutex_unlock(&bucket.lock)
