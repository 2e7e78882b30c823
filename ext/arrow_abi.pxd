"""Arrow's C data interface (arrow.apache.org/docs/format/CDataInterface.html): a type and an array
as their maker lays them out, handed over in capsules named "arrow_schema" and "arrow_array".
Whoever takes them calls `release`, which frees what lies below and sets itself to NULL.
"""
from libc.stdint cimport int64_t

cdef struct ArrowSchema:
    const char* format
    const char* name
    const char* metadata
    int64_t flags
    int64_t n_children
    ArrowSchema** children
    ArrowSchema* dictionary
    void (*release)(ArrowSchema*) noexcept nogil
    void* private_data

cdef struct ArrowArray:
    int64_t length
    int64_t null_count
    int64_t offset
    int64_t n_buffers
    int64_t n_children
    const void** buffers
    ArrowArray** children
    ArrowArray* dictionary
    void (*release)(ArrowArray*) noexcept nogil
    void* private_data
