"""Record batches that are made here: built from records, decompressed, put in another codec.

The format is in batch.pxd, the codecs in compression.pxd. Results are BATCH_* codes; where it
is BATCH_NO_CODEC, this machine lacks the codec's library (`codec_library` names it).
Memory is malloc's and the caller's to free. Free of state.
"""
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t

from kbroker.ext.batch cimport BatchInfo, Header
from kbroker.ext.compression cimport Buffer
from kbroker.ext.wire cimport Slice


ctypedef struct BatchBuilder:     # owned memory: builder_init ... builder_free
    Buffer buffer                 # 61 bytes of header, then records
    int64_t base_timestamp
    int64_t max_timestamp
    int32_t count


ctypedef struct BatchStamp:       # the header fields that the records do not say
    int64_t base_offset
    int64_t producer_id
    int32_t leader_epoch
    int32_t base_sequence
    int16_t producer_epoch
    bint transactional
    bint control


cdef int builder_init(BatchBuilder* b, size_t room) noexcept nogil

# One record more. Its offset is the base offset plus its index.
cdef int builder_append(
    BatchBuilder* b, int64_t timestamp, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil

# The same in the room that there is: BATCH_TOO_LARGE and nothing done where it does not fit.
cdef int builder_append_within(
    BatchBuilder* b, int64_t timestamp, Slice key, Slice value,
    const Header* headers, int32_t header_count,
) noexcept nogil

# Build in `room` bytes (malloc's, of RECORDS_OFFSET at least) of the caller, who keeps them.
cdef void builder_borrow(BatchBuilder* b, uint8_t* p, size_t room) noexcept nogil

# Compress, header and CRC; afterwards b.buffer holds the batch. builder_reset to use it again.
cdef int builder_finish(
    BatchBuilder* b, int codec, int level, const BatchStamp* stamp
) noexcept nogil
# Header and CRC of the n bytes at p, which hold the builder's records in this codec.
cdef void builder_stamp(
    const BatchBuilder* b, uint8_t* p, size_t n, int codec, const BatchStamp* stamp
) noexcept nogil
# The same where the records are not compressed and their own checksum is known.
cdef void builder_stamp_summed(
    const BatchBuilder* b, uint8_t* p, size_t n, const BatchStamp* stamp, uint32_t records_crc
) noexcept nogil
cdef void builder_reset(BatchBuilder* b) noexcept nogil
cdef void builder_free(BatchBuilder* b) noexcept nogil

# What the I/O pool decompresses of one batch: this much at most; and who decompresses more than
# freely does it between begin and end, for what a batch comes to is its producer's choice, up to a
# thousand times its size, and many threads at once would hold as many.
cdef enum:
    DECOMPRESSED_BYTES_MAX = 128 << 20
    DECOMPRESSED_FREELY_BYTES_MAX = 16 << 20

cdef void large_batch_begin() noexcept nogil
cdef void large_batch_end() noexcept nogil

# The records of a compressed batch appended to `out`, at most `limit` bytes.
cdef int batch_decompress(
    const uint8_t* p, const BatchInfo* info, size_t limit, Buffer* out
) noexcept nogil

# The batch with its records in another codec, appended to `out`. Header fields are kept.
# `limit` bounds the records' size while they are not compressed.
cdef int batch_recompress(
    const uint8_t* p, const BatchInfo* info, int codec, int level, size_t limit, Buffer* out
) noexcept nogil

# The header of a batch in front of n bytes of records (not compressed), put in a codec.
cdef int batch_wrap(
    const uint8_t* header, const uint8_t* records, size_t n, int codec, int level, Buffer* out
) noexcept nogil

# Codec bits, length and checksum of a batch whose n bytes at p stand but for these.
cdef void batch_seal(uint8_t* p, size_t n, int codec) noexcept nogil

# BATCH_* for what a codec said.
cdef int batch_code(int codec_code) noexcept nogil
