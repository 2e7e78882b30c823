"""Log lines of the data plane: a bounded ring, many writers without a lock, one reader.

A writer that finds it full counts the line as dropped and goes on.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.connection cimport LogLine, LogRing, Net

cdef enum LogLevel:
    LOG_DEBUG = 10
    LOG_INFO = 20
    LOG_WARNING = 30
    LOG_ERROR = 40

cdef void log_ring_init(LogRing* ring) noexcept nogil
# Any thread; format as printf with two integers (%ld).
cdef void net_log(Net* net, int32_t level, const char* text, int64_t a, int64_t b) noexcept nogil
cdef void net_log_text(Net* net, int32_t level, const char* text) noexcept nogil
# One reader. The oldest line, NULL when there is none; hand it back with log_ring_pop.
cdef LogLine* log_ring_peek(LogRing* ring) noexcept nogil
cdef void log_ring_pop(LogRing* ring) noexcept nogil
