"""Rights that the data plane must know: verdicts of the control plane, kept for a connection.

A network thread looks them up before a Produce, Fetch, ListOffsets or Heartbeat. What it does not
find it puts down as unknown in a new table, which goes to the control thread with the request;
there the verdicts are filled in, and when the request comes home the table becomes the
connection's. Nobody changes a table that others can see. `Broker.rights_version` grows with every
change of ACLs, and a table of an older version is not looked at: what was revoked is gone for the
next request. 0: there is no authorizer, and none of this is done.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.connection cimport Request

cdef enum Right:
    RIGHT_TOPIC_WRITE = 0
    RIGHT_TOPIC_READ
    RIGHT_TOPIC_DESCRIBE
    RIGHT_GROUP_READ
    RIGHT_TRANSACTIONAL_ID_WRITE
    RIGHT_CLUSTER_ACTION            # of no name
    RIGHTS_COUNT

cdef enum Ruling:
    RULING_UNKNOWN = 0
    RULING_DENIED
    RULING_ALLOWED

cdef enum:
    # A larger table holds for the request that it was made for, and is made again for the next.
    RIGHTS_BYTES_MAX = 2097152

ctypedef struct RightEntry:
    uint32_t at                     # of the name, in `names`
    int32_t length                  # -1: free
    uint32_t hash
    uint8_t right
    uint8_t ruling

ctypedef struct Rights:
    int32_t refs                    # atomic
    int64_t version                 # of the ACLs that the rulings go by
    uint32_t mask                   # slots - 1
    uint32_t count
    uint32_t names_bytes
    uint32_t names_capacity
    RightEntry* entries
    uint8_t* names

# An empty one with a reference; NULL: no memory.
cdef Rights* rights_new(int64_t version) noexcept nogil
# A copy of what is known of `old`, which may be NULL, where it is of this version and not large.
cdef Rights* rights_more(const Rights* old, int64_t version) noexcept nogil
cdef Rights* rights_ref(Rights* rights) noexcept nogil
cdef void rights_unref(Rights* rights) noexcept nogil
cdef int rights_find(const Rights* rights, int right, const uint8_t* name,
                     int32_t length) noexcept nogil
# Puts it in where it is not; an unknown one does not replace another. False: no memory.
cdef bint rights_put(Rights* rights, int right, const uint8_t* name, int32_t length,
                     int ruling) noexcept nogil
cdef int64_t rights_bytes(const Rights* rights) noexcept nogil

# The table that a request may be judged by; NULL: none that holds now. Off the network thread it is
# the one that came with the job, whatever has changed since.
cdef inline Rights* rights_of(const Request* request, int64_t version) noexcept nogil:
    cdef Rights* rights
    if request.auth == NULL:
        return NULL
    rights = <Rights*>request.auth[0]
    if rights == NULL or (not request.on_io and rights.version != version):
        return NULL
    return rights
