"""The producer as Python sees it: send(), send_batch(), and what its control thread needs.

`SenderDriver` owns accumulator and sender and hangs into a ClientLoop; `ProducerBase` is what
Python's Producer is made of, and refers to the driver only, so that no reference goes round.
send() holds the GIL all along unless it has to wait for memory.
"""
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.client_accumulator cimport Accumulator
from kbroker.ext.client_topic cimport Topic
from kbroker.ext.client_batch cimport Rec
from kbroker.ext.client_delivery cimport Delivery
from kbroker.ext.client_loop cimport LoopDriver
from kbroker.ext.client_peers cimport Sender
from kbroker.ext.client_unasked cimport Unasked


cdef class SenderDriver(LoopDriver):
    cdef Accumulator a
    cdef Sender s
    cdef dict topics                # name -> TopicRef
    cdef object rested              # set after each round of callbacks
    cdef int running                # threads that run them
    cdef readonly Unasked unasked

    cdef Topic* topic(self, str name) except? NULL


cdef class TopicRef:
    cdef Topic* topic


# Asked while memory is waited for; raise_signal() raises what it left.
cdef bint signal_raised() noexcept nogil
cdef int raise_signal() except -1


cdef class ProducerBase:
    cdef readonly SenderDriver driver
    cdef Accumulator* a
    cdef str last_name
    cdef Topic* last_topic
    cdef readonly int64_t max_block_ns
    cdef int32_t generation
    cdef bint plain                 # neither serializers nor interceptors nor a callable
    cdef bint ended
    cdef object __weakref__

    cdef int check(self) except -1
    cdef Topic* find_topic(self, object name) except NULL
    cdef Delivery append(
        self, object topic, object value, object key, object partition, object headers,
        object timestamp_ms, object on_delivery, int64_t wait_ns
    )
    # wait_ns: for memory, at most; 0: not at all, and None where it would have to.
    cdef Delivery put(
        self, str name, Topic* t, int32_t partition, const Rec* rec, object on_delivery,
        int64_t wait_ns
    )
