"""gzip by the system's shared libraries, opened when this module is loaded.

No header and no -dev package is needed: the few functions are declared here, and zlib's binary
interface has not changed since 1.2.0 (2003). Every call makes its own stream, so all of this may
run in any thread. Where there is libdeflate.so.0, too, it does what it can do as a whole
(compression_deflate); zlib does the rest, and judges what is corrupt.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport Buffer


cdef bint gzip_available() noexcept nogil

# As codec_compress and codec_decompress in compression.pxd.
cdef int gzip_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int gzip_decompress(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil
