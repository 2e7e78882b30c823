"""The loop of a network thread."""
from kbroker.ext.connection cimport Net, NetThread

# NULL when the system refuses memory or descriptors.
cdef NetThread* thread_new(Net* net, int index) noexcept nogil
cdef void thread_free(NetThread* thread) noexcept nogil
cdef void* runner_main(void* runner) noexcept nogil
