"""Sums of the network threads' counters, for stats()."""
from kbroker.ext.connection cimport Net

cdef dict net_stats(Net* net)
