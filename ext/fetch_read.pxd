"""What of each partition a fetch can have now, and where the partitions stand."""
from kbroker.ext.fetch_state cimport Fetch

# Reads all partitions in their order, within the bounds of the request and of fetch.max.bytes. A
# log that somebody holds who stands in the disk gives nothing, and sets `held`.
cdef void fetch_evaluate(Fetch* fetch) noexcept nogil
