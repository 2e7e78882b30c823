"""Fetch (key 1), the hot path: see fetch.pyx."""
from kbroker.ext.connection cimport Request

cdef int handle_fetch(Request* request) noexcept nogil
