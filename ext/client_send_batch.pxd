"""send_batch(): columns into batches, in chunks, the GIL held only where objects are read."""
from libc.stdint cimport int32_t, int64_t

from kbroker.ext.client_batch cimport Rec
from kbroker.ext.client_columns_in cimport ColumnIn
from kbroker.ext.client_delivery cimport BatchDelivery
from kbroker.ext.client_headers cimport HeadersIn
from kbroker.ext.client_producer cimport ProducerBase
from kbroker.ext.client_topic cimport Topic
from kbroker.ext.record cimport Header

cdef enum:
    CHUNK_RECORDS = 256


cdef class ColumnsIn:
    """What one send_batch() was given."""
    cdef ColumnIn values
    cdef ColumnIn keys
    cdef ColumnIn headers           # an Arrow column, or objects
    cdef ColumnIn times
    cdef ColumnIn partitions
    cdef str topic
    cdef BatchDelivery delivery
    cdef int64_t count
    cdef int64_t start              # the first record that is not taken yet
    cdef int64_t now_ms
    cdef int32_t partition          # -1: of a column or by the producer's way
    # A chunk, and what keeps its objects.
    cdef Rec recs[CHUNK_RECORDS]
    cdef int32_t places[CHUNK_RECORDS]
    cdef list held
    cdef Header* room
    cdef int64_t room_count
    cdef int32_t* last              # of each partition: its last range in the delivery, -1 for none
    cdef int32_t last_count

    cdef int set(self, str field, object given) except -1
    cdef int fill(self, int64_t start, int32_t n) except -1
    cdef int fill_bytes(self, ColumnIn column, int64_t start, int32_t n, bint keys) except -1
    cdef int fill_headers(self, int64_t start, int32_t n) except -1
    cdef int fill_arrow_headers(self, int64_t start, int32_t n) except -1
    cdef int32_t* last_of(self, int32_t partition) except NULL nogil


cdef class ProducerCore(ProducerBase):
    cdef int place(self, ColumnsIn columns, Topic* t, int32_t n) except -1
    cdef int append_chunk(
        self, ColumnsIn columns, Topic* t, int32_t n, int64_t wait_ns
    ) except? -1                    # MEMORY_TIMEOUT is -1
