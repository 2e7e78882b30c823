"""Batches that failed without a callback, until a delivery is asked about them or none is left.

A delivery may be dropped before the outcome is there, after it, or on the way out of send(): the
broker can answer before the thread that called it goes on. So a batch waits here for either. With
the GIL.
"""
from kbroker.ext.client_batch cimport ClientBatch


cdef class Unasked:
    cdef ClientBatch* waiting       # linked by `next`; each holds a reference of its root
    cdef ClientBatch* forgotten     # of these, the ones that nobody can ask about any more
    cdef public object unseen       # unseen(error, topic, records) is told of them

    # The caller's reference of the batch's root goes.
    cdef void put(self, ClientBatch* b) noexcept
    cdef void sort_out(self) noexcept
    cdef int tell_one(self, ClientBatch* b) except -1


cdef Unasked unasked_new()
