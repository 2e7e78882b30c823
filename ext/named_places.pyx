"""The partitions that a request has named so far (see named_places.pxd)."""
from kbroker.ext.byte_table cimport process_seed, table_free, table_init, table_put


cdef void named_init(NamedPlaces* named) noexcept nogil:
    table_init(&named.topics, process_seed())
    table_init(&named.places, process_seed())


cdef void named_free(NamedPlaces* named) noexcept nogil:
    table_free(&named.topics)
    table_free(&named.places)


cdef int64_t named_topic(NamedPlaces* named, const uint8_t* p, size_t n) noexcept nogil:
    return table_put(&named.topics, p, n)


cdef int64_t named_partition(NamedPlaces* named, int64_t topic, int32_t partition) noexcept nogil:
    cdef int64_t key[2]
    key[0] = topic
    key[1] = partition
    return table_put(&named.places, <const uint8_t*>key, sizeof(key))
