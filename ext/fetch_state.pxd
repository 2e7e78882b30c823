"""A fetch while it is evaluated, and while it waits: its partitions, its session, its bounds.

Made from a request by fetch_request.pyx, evaluated and answered by fetch.pyx. Belongs to whoever
runs the handler, then to its Op.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.broker cimport Broker
from kbroker.ext.connection cimport Request
from kbroker.ext.fetch_wire cimport FetchHead, FetchPartition
from kbroker.ext.sessions cimport Session

ctypedef struct Fetch:
    Broker* broker
    FetchHead head
    int16_t version
    int16_t error                   # of the whole request
    bint incremental                # the response leaves out what has not changed
    bint create_session             # a full fetch that asks for one
    Session* session                # a reference; NULL: none
    int64_t generation              # of the session when `cached` pointers were taken
    int64_t now_ms
    uint32_t count
    FetchPartition* partitions      # in the same block as this struct, then their names
    int64_t bytes                   # readable, after evaluation
    bint answer_now                 # an error or a diverging epoch: do not wait
    bint evaluated                  # at least once
    int64_t throttle_ms             # above 0: the answer is empty
    bint undurable                  # a partition has appended what is not yet on disk
    bint awaits                     # ... before the request came
    bint held                       # a partition's log is locked for long
    int64_t ends_ms                 # monotonic: answered then with what there is
    int64_t durable_by_ms           # ... then, where there is nothing, and something is awaited

# The request as a Fetch; NULL: malformed, or no memory (request.reason says which).
cdef Fetch* fetch_from_request(Request* request) noexcept nogil
# Lets go of logs, slices and session.
cdef void fetch_free(Fetch* fetch) noexcept nogil
cdef void partition_drop_read(FetchPartition* partition) noexcept nogil
