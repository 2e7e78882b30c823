"""The two clocks of the data plane. Waits, deadlines use the monotonic one, records the other."""
from libc.stdint cimport int64_t

from kbroker.ext.posix cimport CLOCK_MONOTONIC, CLOCK_REALTIME, clock_gettime, timespec_t


cdef inline int64_t monotonic_ns() noexcept nogil:
    cdef timespec_t now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return now.tv_sec * <int64_t>1000000000 + now.tv_nsec


cdef inline int64_t realtime_ms() noexcept nogil:
    cdef timespec_t now
    clock_gettime(CLOCK_REALTIME, &now)
    return now.tv_sec * <int64_t>1000 + now.tv_nsec // 1000000


cdef inline timespec_t timespec_of(int64_t ns) noexcept nogil:
    """For waits until a time of the monotonic clock."""
    cdef timespec_t time
    time.tv_sec = ns // 1000000000
    time.tv_nsec = ns % 1000000000
    return time
