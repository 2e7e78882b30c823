"""Snappy (github.com/google/snappy, format_description.txt) in the framing of snappy-java.

The Java client writes a header of 16 bytes (82 'SNAPPY' 00, two int32: version 1, compatible
with 1) and chunks: int32 length, big endian, and a snappy block of at most 32 KiB. Other
clients write one bare block. Both are read; the Java form is written.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport Buffer


cdef int snappy_compress(const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int snappy_decompress(
    const uint8_t* p, size_t n, size_t limit, Buffer* out
) noexcept nogil
