"""A column store as Arrow sees it: the C data interface (arrow.apache.org/docs/format), in the
capsules of its PyCapsule form. What is handed out holds the store. Keys and values go as `binary`,
which the store makes by a copy, or as `binary_view`, which it has.

    struct<topic: dictionary<int32, utf8>, partition: int32, offset: int64,
           timestamp: timestamp[ms, UTC], key: binary[_view], value: binary[_view],
           headers: list<struct<key: utf8, value: binary>>>
"""
from kbroker.ext.client_column_store cimport Store

# Capsule "arrow_schema"; whether key and value are views.
cdef object store_schema(bint keys, bint values)
# Capsule "arrow_array" to that schema.
cdef object store_array(Store* store, bint keys, bint values)
# Whether a capsule "arrow_schema", or None, asks for the field `name` as a binary view.
cdef bint wants_views(object requested, const char* name) except -1
