"""Room for a produce request, in journals and within the disks' limits, and the journals' wake-up.

With one directory in log.dirs both are one look at one journal; with several each is asked for what
is its own: a directory that is full or whose disk hangs is no concern of requests to the others.
"""
from libc.stdint cimport uint32_t, uint64_t

from kbroker.ext.broker cimport Broker
from kbroker.ext.connection cimport Request
from kbroker.ext.log_state cimport Log
from kbroker.ext.produce_wire cimport PartitionResult

# It wants something of a log directory that hangs: stall, and look at no log of it.
cdef bint produce_hangs(Broker* broker, const Request* request) noexcept nogil
# Of a request that was walked before and found sound. False: stall until there is room. *full is
# the set of directories whose limits leave none, by their places.
cdef bint produce_has_room(Broker* broker, const Request* request, uint32_t records_bytes,
                           uint32_t count, uint64_t* full) noexcept nogil
# What was appended is waited for: have the journals written now.
cdef void produce_demand(Broker* broker, const PartitionResult* results,
                         uint32_t count) noexcept nogil

cdef inline bint is_full(uint64_t full, const Log* log) noexcept nogil:
    """Whether the log's directory is among them; a log that is not open is looked for in the
    first."""
    return (full >> (log.directory if log != NULL else 0)) & 1
