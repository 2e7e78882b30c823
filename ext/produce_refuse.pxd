"""A Produce request while it is handled, and what is said of a batch that is refused."""
from libc.stdint cimport int32_t, int64_t, uint32_t, uint64_t

from kbroker.ext.batch cimport BatchRules
from kbroker.ext.broker cimport Broker
from kbroker.ext.connection cimport Request
from kbroker.ext.produce_verify cimport Openings
from kbroker.ext.produce_wire cimport PartitionResult, ProduceHead
from kbroker.ext.producers cimport Terms
from kbroker.ext.rights cimport Rights

# One request while it is handled; on the stack of handle_produce.
ctypedef struct Produce:
    Request* request
    Broker* broker
    ProduceHead head
    BatchRules rules                # of the partition at hand
    uint32_t count                  # partitions
    uint32_t records_bytes
    bint heavy                      # something must be decompressed
    uint64_t full                   # directories whose limits leave no room for clients
    int64_t stalled_until_ns        # monotonic; 0: no journal has been waited for
    bint demand                     # somebody waits for the journal
    bint failed                     # a partition has an error
    int32_t waiting                 # partitions whose batch must become durable
    int32_t bad_left                # bad records that may still be listed
    bint transactional
    bint verifies                   # batches that open a transaction want a verdict
    bint checks                     # there is an authorizer
    bint unsettled                  # a right is not known
    bint denied                     # the transactional id may not be used
    bint overdue                    # it has waited for room for as long as it may: append nothing
    const Rights* rights
    Openings openings
    Terms terms                     # of the batch at hand
    PartitionResult* results

# By its content. Records of the wrong kind are listed each.
cdef void produce_refuse(Produce* produce, PartitionResult* result, int code) noexcept nogil
