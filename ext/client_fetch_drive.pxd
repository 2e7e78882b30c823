"""The fetcher on its loop: one Fetch in flight a link, answers taken apart into chunks.

What an answer says of a partition counts when the partition is still as it was when it was asked
for (session, generation, offset); what it says of anything else is passed over. A frame is kept
as it came and shared by its chunks.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.client_fetch_state cimport Fetch

cdef enum:
    EVENT_FETCH = 32                    # to the control thread: ask Fetcher.attention()

# A Driver's functions; self is the Fetch.
cdef int64_t fetch_drive(void* self, int64_t now_ns) noexcept nogil
cdef void fetch_link_down(void* self, int32_t link, int code) noexcept nogil
cdef void fetch_stopped(void* self) noexcept nogil
