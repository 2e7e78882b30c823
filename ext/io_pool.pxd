"""The I/O pool: threads for requests that may block or take long (H_IO)."""
from libc.stdint cimport int32_t

from kbroker.ext.connection cimport Net

# So many workers from now on, at the start and later; those beyond sleep. 0, or an errno.
cdef int io_pool_resize(Net* net, int32_t wanted) noexcept nogil
# One more of them stands in a disk that hangs: it does not count until it has left (runners.pyx).
cdef void io_pool_hold(Net* net) noexcept nogil
# Ends when what is queued is done; jobs that wait for the journal are dropped.
cdef void io_pool_stop(Net* net) noexcept nogil
