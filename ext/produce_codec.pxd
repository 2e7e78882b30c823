"""A batch that must be decompressed before the append; runs in the I/O pool."""
from libc.stdint cimport int32_t, uint8_t

from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET,
    CODEC_MASK,
    RECORDS_OFFSET,
    BatchInfo,
    BatchRules,
)
from kbroker.ext.compression cimport Buffer
from kbroker.ext.connection cimport Net
from kbroker.ext.log_state cimport Log
from kbroker.ext.produce_wire cimport BadRecords
from kbroker.ext.wire cimport Slice

cdef inline bint must_decompress(Log* log, const Slice* records) noexcept nogil:
    """Does the topic want a look into the batch, or another codec than it has?"""
    cdef int32_t codec
    if log == NULL or records.n < RECORDS_OFFSET:
        return False
    codec = records.p[ATTRIBUTES_OFFSET + 1] & CODEC_MASK
    if log.cfg.compression_type >= 0 and log.cfg.compression_type != codec:
        return True
    return codec != 0 and log.cfg.cleanup_compact


# Owned; all zero when there is nothing to free.
ctypedef struct Rewritten:
    Buffer buffer
    uint8_t* batch                  # in buffer; NULL: the batch stays as it came
    BatchInfo info

# Checks the records of the validated batch at p where the topic is compacted, and rewrites it
# where compression.type asks for another codec. BATCH_OK or a batch error.
cdef int rewrite_batch(Log* log, const uint8_t* p, const BatchRules* rules, BatchInfo* info,
                       Rewritten* out, int32_t* bad_left, BadRecords* bad) noexcept nogil
cdef void rewritten_free(Rewritten* rewritten) noexcept nogil
# After BATCH_NO_CODEC: one line a codec and start, naming the library to install.
cdef void tell_missing_codec(Net* net, int32_t codec) noexcept nogil
