"""A frame becomes a request: header, version check, dispatch.

    frame = length i32, then: api key i16, api version i16, correlation id i32,
            client id nullable string (i16 length, always), header v2: tagged fields
Header v2 belongs to versions from the API's first flexible version on. Sources: KIP-482, KIP-511.
"""
from libc.stdint cimport uint8_t, uint32_t, uint64_t

from kbroker.ext.connection cimport Connection, Job, Net, Request
from kbroker.ext.stays cimport Stay

cdef enum FrameResult:
    FRAME_TAKEN = 0         # handled, or the connection was closed
    FRAME_STALLED           # keep it and offer it again after net_unstall_all

# The frame after its length field. 0, or -1 for bytes that are no header.
cdef int frame_parse_header(Net* net, Request* request, uint8_t* frame,
                            uint32_t length) noexcept nogil
cdef int frame_handle(Connection* connection, uint8_t* frame, uint32_t length) noexcept nogil
# In the I/O pool, within a turn of these: fills the request from the job and calls the handler.
cdef int job_handle(Job* job, uint64_t* turns, Stay* stay) noexcept nogil
