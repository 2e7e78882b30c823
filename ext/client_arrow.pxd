"""A column store as Arrow sees it: the C data interface (arrow.apache.org/docs/format), in the
capsules of its PyCapsule form. What is handed out holds the store, so that no byte is copied.

    struct<topic: dictionary<int32, utf8>, partition: int32, offset: int64,
           timestamp: timestamp[ms, UTC], key: binary, value: binary,
           headers: list<struct<key: utf8, value: binary>>>
"""
from kbroker.ext.client_column_store cimport Store

cdef object store_schema()              # capsule "arrow_schema"
cdef object store_array(Store* store)   # capsule "arrow_array"
