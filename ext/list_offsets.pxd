"""ListOffsets (key 2) on the data plane: see list_offsets.pyx."""
from kbroker.ext.connection cimport Request

cdef int handle_list_offsets(Request* request) noexcept nogil
