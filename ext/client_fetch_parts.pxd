"""What is assigned to a consumer (see client_fetch_parts.pyx), and the fields of its fetcher."""
from libc.stdint cimport int64_t

from kbroker.ext.client_fetch_state cimport Chunk, Fetch, Part, Topic
from kbroker.ext.client_loop cimport LoopDriver
from kbroker.ext.client_record cimport Source

cdef class FetchParts(LoopDriver):
    cdef Fetch* fetch
    cdef dict parts                     # (topic, partition): address of its Part
    cdef list names                     # of topics, by their index
    cdef object convert
    cdef public object unassigned       # the exception for a partition that is not assigned
    # The open batch, of the chunk that `source` is for.
    cdef Chunk* open_chunk
    cdef Source source
    cdef int64_t budget                 # records that the iterator may still give
    cdef int64_t given
    # What a call has taken and has not returned yet: positions move when it is returned.
    cdef bint holding                   # records are being taken for such a call
    cdef object taken                   # its list of Record or its Columns
    cdef int64_t taken_count
    # Records are being taken, maybe without the GIL: no chunk may go.
    cdef readonly bint busy

    cdef Part* part(self, object where) except NULL
    cdef Topic* topic(self, str name) except NULL
    cdef int check_idle(self) except -1
    cdef int leave(self, Part* part) except -1
    cdef int untake(self) except -1
    cdef void note_returned(self)
    cdef void wake_loop(self)
    cdef Chunk* ready(self) noexcept nogil
