"""The I/O pool: threads for requests that may block or take long (H_IO)."""
from kbroker.ext.connection cimport Net

cdef int io_pool_start(Net* net) noexcept nogil
# Ends when what is queued is done; jobs that wait for the journal are dropped.
cdef void io_pool_stop(Net* net) noexcept nogil
