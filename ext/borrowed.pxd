"""The bytes of a Python object that has a buffer, held for as long as this object lives.

For the def faces only. A typed memoryview does the same and brings 25,000 lines of C++ into every
module that names one: five seconds of compiling each.
"""

from libc.stddef cimport size_t
from libc.stdint cimport uint8_t


cdef class Borrowed:
    # Not NULL also where n is 0; may be written only where `writable` was asked for.
    cdef uint8_t* p
    cdef size_t n
    cdef Py_buffer view
