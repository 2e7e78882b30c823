"""What an answer tells: of a session what is new, and everything where there is none."""
from libc.stdint cimport int32_t

from kbroker.ext.fetch_state cimport Fetch

# Sets `respond` of each partition, and notes in the session what the client is told; returns the
# session id of the answer.
cdef int32_t fetch_choose(Fetch* fetch) noexcept nogil
