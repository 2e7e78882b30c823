"""Borrow the bytes of bytes, bytearray, memoryview and the like."""

from cpython.buffer cimport (
    PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer,
)


cdef class Borrowed:
    """TypeError where the object has no buffer, BufferError where it is not one piece or, with
    `writable`, may not be written."""

    def __cinit__(self, data: bytes | bytearray | memoryview, writable: bool = False):
        PyObject_GetBuffer(data, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.p = <uint8_t*> self.view.buf if self.view.len else <uint8_t*> b""
        self.n = self.view.len

    def __dealloc__(self):
        PyBuffer_Release(&self.view)
