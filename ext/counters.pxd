"""Sums of the network threads' counters, for stats()."""
from kbroker.ext.connection cimport Net
from kbroker.ext.times cimport Histogram

cdef dict net_stats(Net* net)
# By API key: (requests by version, bytes of requests, how many wait, (sum in ns, counts by bucket)
# of each phase).
cdef dict net_times(Net* net)
cdef tuple histogram_told(const Histogram* histogram)
# (api key, version, correlation id, connection id, (address, port), ns of each phase) of requests
# that took longer than Net.slow_ns, since the last call. The control thread's.
cdef list net_slow(Net* net)
