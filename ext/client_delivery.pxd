"""Deliveries: what send() and send_batch() give back, futures over the batches of the producer.

A Delivery is a reference to a batch and an index in it; nothing is made for a record but this.
Callbacks lie in a list at the batch, which only those that were asked for make; the control thread
runs them when it learns of the outcome (`run_callbacks`). With the GIL, on any thread.
"""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.client_batch cimport ClientBatch


cdef class Delivery:
    cdef ClientBatch* batch         # owned
    cdef readonly str topic
    cdef int64_t time_ms            # the record's own timestamp
    cdef int32_t index
    cdef int32_t key_bytes          # -1: null
    cdef int32_t value_bytes

    cdef object outcome(self)
    cdef int add_callback(self, object callback) except -1


cdef struct Range:                  # records of one send_batch() that lie together in a batch
    ClientBatch* batch              # owned
    int32_t index
    int32_t count


cdef class BatchDelivery:
    cdef Range* ranges
    cdef int32_t count
    cdef int32_t room
    cdef readonly str topic
    cdef readonly int64_t records
    cdef object __weakref__

    cdef int add(self, ClientBatch* b, int32_t index, int32_t count, int32_t* last) except -1 nogil
    cdef int ranges_of(self, Range* range_, list found, list errors) except -1


# Without a batch yet.
cdef Delivery delivery_new()
cdef BatchDelivery batch_delivery_new()
# The exception of a record; that of its batch where index is -1.
cdef object error_of(ClientBatch* b, int32_t index, str topic)
# Of a batch whose outcome was told to Python; its reference goes.
cdef int run_callbacks(ClientBatch* b) except -1
