"""Columns: a batch of records as columns, for numpy and Arrow, without an object a record."""
from kbroker.ext.client_column_store cimport Binary, Store

cdef class Columns:
    cdef Store* store                   # referenced
    cdef readonly tuple topics

# Takes over the reference to the store.
cdef Columns columns_of(Store* store, list topics)
