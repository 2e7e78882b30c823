"""gzip and zstd by the system's shared libraries, opened when this module is loaded.

No header and no -dev package is needed: the few functions are declared here, and their binary
interface has not changed since zlib 1.2.0 (2003) and zstd 1.4.0 (2019). Every call makes its
own stream, so all of this may run in any thread.
"""
from libc.stdint cimport uint8_t

from kbroker.ext.compression_buffer cimport Buffer


cdef bint gzip_available() noexcept nogil
cdef bint zstd_available() noexcept nogil

# As codec_compress and codec_decompress in compression.pxd.
cdef int gzip_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int gzip_decompress(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil
cdef int zstd_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int zstd_decompress(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil
