"""LZ4 frames (github.com/lz4/lz4, doc/lz4_Frame_format.md 1.6.3), as Kafka's clients write them.

Written: independent blocks of 64 KiB, no checksums, no content size, which the Java client reads
(`lz4_is_kafkas`). Read: linked blocks, larger blocks, block and content checksums, a content size,
several frames and skippable ones as well. No dictionaries.
"""
from libc.stdint cimport uint8_t, uint32_t

from kbroker.ext.compression_buffer cimport Buffer


cdef uint32_t xxh32(const uint8_t* p, size_t n) noexcept nogil

# As codec_compress and codec_decompress; level 1 to 17, 0 and 9 are the quick way, as in Kafka.
cdef int lz4_compress(int level, const uint8_t* p, size_t n, Buffer* out) noexcept nogil
cdef int lz4_decompress(const uint8_t* p, size_t n, size_t limit, Buffer* out) noexcept nogil

# Whether this is one frame of independent blocks and nothing else, which is all that Kafka's Java
# client reads. What is within the blocks is not looked at.
cdef bint lz4_is_kafkas(const uint8_t* p, size_t n) noexcept nogil
