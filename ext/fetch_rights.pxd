"""Which partitions of a fetch the client may read (see rights.pxd).

As in Apache Kafka that is settled once, when the request has come: one that waits for records is
answered by what held then.
"""
from libc.stdint cimport int64_t

from kbroker.ext.fetch_state cimport Fetch
from kbroker.ext.rights cimport Rights

# Marks the partitions that may not be read. False: a right is not known, and denied for now.
cdef bint fetch_settle(Fetch* fetch, const Rights* rights) noexcept nogil
# The rights that it wants, those that are not known yet as unknown; NULL: no memory.
cdef Rights* fetch_rights(const Fetch* fetch, const Rights* known, int64_t version) noexcept nogil
