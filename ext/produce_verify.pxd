"""Which partitions of a Produce open a transaction: the coordinator is asked about them (KIP-890).

The network thread only asks whether there is one. If so the request goes to the control thread,
which draws a guard for each such partition, asks the transaction coordinator, and hands the request
with its verdicts to the I/O pool, where it is appended. Batches that go on in a transaction that is
open in the log never come this way.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET,
    MAGIC_OFFSET,
    RECORDS_OFFSET,
    TRANSACTIONAL_BIT,
)
from kbroker.ext.broker cimport Broker
from kbroker.ext.connection cimport Job, Request
from kbroker.ext.produce_wire cimport ProduceTopic
from kbroker.ext.registry cimport Topic, registry_by_id, registry_by_name
from kbroker.ext.rights cimport RIGHT_TOPIC_WRITE, RULING_ALLOWED, Rights, rights_find
from kbroker.ext.wire cimport Slice

cdef enum:
    FIRST_THAT_ADDS = 12            # Produce that adds its partitions to the transaction by itself

cdef enum Openings:
    OPENS_NONE = 0
    OPENS_SOME
    OPENS_FOR_SEVERAL               # batches of more than one producer and epoch: no such request

cdef inline bint is_transactional(const Slice* records) noexcept nogil:
    return records.n > RECORDS_OFFSET and records.p[MAGIC_OFFSET] == 2 \
        and records.p[ATTRIBUTES_OFFSET + 1] & TRANSACTIONAL_BIT


cdef inline Topic* find_topic(Broker* broker, const ProduceTopic* topic) noexcept nogil:
    if topic.id != NULL:
        return registry_by_id(&broker.registry, topic.id)
    return registry_by_name(&broker.registry, topic.name.p, topic.name.n)


# What the rights say of a topic; it is allowed where nothing is checked, and where there is none of
# an id, which is said.
cdef inline int topic_ruling(const Rights* rights, bint checks, const ProduceTopic* topic,
                             const Topic* found) noexcept nogil:
    if not checks:
        return RULING_ALLOWED
    if topic.id == NULL:
        return rights_find(rights, RIGHT_TOPIC_WRITE, topic.name.p, topic.name.n)
    if found == NULL:
        return RULING_ALLOWED
    return rights_find(rights, RIGHT_TOPIC_WRITE, found.name, found.name_length)


# Of a request that was walked before and found sound. What may not be written opens nothing.
cdef Openings produce_openings(Broker* broker, const Request* request, const Rights* rights,
                               bint checks) noexcept nogil
# The rights that a request wants, those that are not known yet as unknown; NULL: no memory.
cdef Rights* produce_rights(Broker* broker, const Request* request, const Rights* known,
                            int64_t version, bint transactional) noexcept nogil

# ---- the control thread's: a Produce that came to it

# Draws guards, makes job.verdicts: (transactional id, producer id, epoch, [(topic, partition)] of
# what opens the transaction), the number in the request of each into `places`.
cdef tuple verification_begin(Broker* broker, Job* job, list places)
