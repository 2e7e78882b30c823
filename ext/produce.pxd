"""Produce (key 0), the hot path: see produce.pyx."""
from kbroker.ext.connection cimport Request

cdef int handle_produce(Request* request) noexcept nogil
