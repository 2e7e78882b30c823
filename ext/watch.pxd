"""The watch: a thread that looks for others that stand in a disk that hangs (see runners.pxd)."""
from kbroker.ext.connection cimport Net

# 0, or an errno.
cdef int watch_start(Net* net) noexcept nogil
# No runner comes any more.
cdef void watch_stop(Net* net) noexcept nogil
