"""Columns as send_batch() takes them, without an object for a record:

    sequence of bytes or None       lists and tuples, read with the GIL in chunks
    numpy, by the buffer protocol   'S' (trailing NULs cut, as numpy does), 2-D uint8 (a row is a
                                    value), object; int64 and int32 for timestamps and partitions;
                                    datetime64 for timestamps
    Arrow, by the C data interface  binary, utf8, their large and view forms, fixed_size_binary;
                                    int64, timestamp[ms|s|us|ns], int32; headers: map<utf8, binary>
                                    or list<struct<key, value>>

Neither numpy nor pyarrow is imported. A column borrows the memory of its object and holds it.
"""
from cpython.buffer cimport Py_buffer
from cpython.object cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint8_t

from kbroker.ext.arrow_abi cimport ArrowArray, ArrowSchema
from kbroker.ext.record cimport Header
from kbroker.ext.wire cimport Slice

cdef enum:
    COLUMN_NONE = 0                 # every value is null
    COLUMN_OBJECTS = 1
    COLUMN_OFFSETS = 2              # int32
    COLUMN_OFFSETS_LARGE = 3        # int64
    COLUMN_FIXED = 4
    COLUMN_VIEWS = 5
    COLUMN_INT32 = 6
    COLUMN_INT64 = 7

cdef struct Column:
    int kind
    bint trimmed                    # FIXED: trailing NULs are not of the value
    int64_t length
    int64_t first                   # index of value 0 in the buffers
    int64_t stride
    int64_t width                   # FIXED
    int64_t scale                   # INT64: to ms, negative: divide
    const uint8_t* validity         # bitmap or NULL
    const uint8_t* data             # FIXED, INTs, OBJECTS with a stride; values of OFFSETS, VIEWS
    const uint8_t* offsets
    const void** variadic           # of VIEWS

cdef Slice column_slice(const Column* c, int64_t i) noexcept nogil      # not of OBJECTS
cdef int64_t column_int(const Column* c, int64_t i) noexcept nogil
cdef bint column_null(const Column* c, int64_t i) noexcept nogil


cdef class ColumnIn:
    """A column and what keeps its memory."""
    cdef Column c
    cdef object held
    cdef Py_buffer view
    cdef bint viewed
    cdef ColumnIn keys              # of a column of headers: flattened
    cdef ColumnIn values

    cdef PyObject* item(self, int64_t i) except NULL        # of OBJECTS, borrowed
    cdef int take_buffer(self, object given, str field, bint ints) except -1
    cdef int take_headers(self, ArrowSchema* schema, ArrowArray* array, str field) except -1
    cdef int take_arrow(self, ArrowSchema* schema, ArrowArray* array, str field) except -1
    cdef int headers_of(self, int64_t i, int64_t* first) noexcept nogil


# pyarrow's ChunkedArray and Table as one Array and RecordBatch; anything else as it is.
cdef object unchunked(object given, str field)
cdef ColumnIn column_of_bytes(object given, str field)
cdef ColumnIn column_of_ints(object given, str field)
cdef ColumnIn column_of_headers(object given)       # of Arrow
# Of something with __arrow_c_array__ that is a struct: its fields by name; None: it is none.
cdef dict columns_of_batch(object given)
