"""The batches of an answer that is on its way, summed while their bytes are in the cache.

Between its arrival and its reading an answer leaves the processor's cache, and the CRC alone would
bring every byte back. So each batch is summed as soon as its last byte is there. What is found
good is noted and nothing else: what is bad, or cut, or no Fetch answer at all, is found again, and
told, by those who read it.
"""
from libc.stdint cimport int16_t, uint8_t, uint64_t

from kbroker.ext.client_fetch_state cimport Scan

# Any bytes; `frame` from its correlation id on, of which `have` have come.
cdef void scan_more(
    Scan* scan, const uint8_t* frame, uint64_t have, int16_t version
) noexcept nogil
