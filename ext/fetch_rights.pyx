"""Which partitions of a fetch the client may read (see fetch_rights.pxd)."""
from libc.stdint cimport int32_t, uint8_t, uint32_t

from kbroker.ext.fetch_wire cimport FetchPartition
from kbroker.ext.registry cimport Topic, registry_by_id
from kbroker.ext.rights cimport (
    RIGHT_CLUSTER_ACTION, RIGHT_TOPIC_READ, RULING_ALLOWED, RULING_UNKNOWN, rights_find,
    rights_more, rights_put, rights_unref,
)

cdef const uint8_t* NOTHING = <const uint8_t*><const char*>b""

ctypedef struct Name:
    const uint8_t* p                # NULL: of an id that nobody knows, which is said
    int32_t n


cdef void name_of(const Fetch* fetch, const FetchPartition* partition, Name* out) noexcept nogil:
    cdef Topic* topic
    out.p = partition.target.name
    out.n = partition.target.name_length
    if out.p == NULL:
        topic = registry_by_id(&fetch.broker.registry, partition.target.id)
        if topic != NULL:
            out.p = topic.name
            out.n = topic.name_length


cdef inline int ruling_of(const Fetch* fetch, const FetchPartition* partition,
                          const Rights* rights) noexcept nogil:
    cdef Name name
    name_of(fetch, partition, &name)
    if name.p == NULL:
        return RULING_ALLOWED
    return rights_find(rights, RIGHT_TOPIC_READ, name.p, name.n)


cdef bint fetch_settle(Fetch* fetch, const Rights* rights) noexcept nogil:
    cdef bint follows = fetch.head.replica_id >= 0
    cdef bint known = True
    cdef int ruling = RULING_ALLOWED
    cdef uint32_t i
    if follows:
        ruling = rights_find(rights, RIGHT_CLUSTER_ACTION, NOTHING, 0)
        known = ruling != RULING_UNKNOWN
    for i in range(fetch.count):
        if not follows:
            ruling = ruling_of(fetch, &fetch.partitions[i], rights)
            known = known and ruling != RULING_UNKNOWN
        fetch.partitions[i].denied = ruling != RULING_ALLOWED
    return known


cdef Rights* fetch_rights(const Fetch* fetch, const Rights* known, int64_t version) noexcept nogil:
    cdef Rights* rights = rights_more(known, version)
    cdef Name name
    cdef bint fits = rights != NULL
    cdef uint32_t i
    if fits and fetch.head.replica_id >= 0:
        fits = rights_put(rights, RIGHT_CLUSTER_ACTION, NOTHING, 0,
                          rights_find(known, RIGHT_CLUSTER_ACTION, NOTHING, 0))
    elif fits:
        for i in range(fetch.count):
            name_of(fetch, &fetch.partitions[i], &name)
            if fits and name.p != NULL:
                fits = rights_put(rights, RIGHT_TOPIC_READ, name.p, name.n,
                                  rights_find(known, RIGHT_TOPIC_READ, name.p, name.n))
    if not fits:
        rights_unref(rights)
        return NULL
    return rights
