"""zstd by the system's shared library, opened when this module is loaded.

No header and no -dev package is needed: the few functions are declared here, and their binary
interface has not changed since zstd 1.4.0 (2019). All of this may run in any thread.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport Buffer


cdef bint zstd_available() noexcept nogil

# As codec_compress and codec_decompress in compression.pxd.
cdef int zstd_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int zstd_decompress(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil
