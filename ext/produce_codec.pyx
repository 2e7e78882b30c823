"""Decompressing what a topic's settings want to see, and recompressing it; see the contract.

Memory is bounded: a batch decompresses to at most DECOMPRESSED_BYTES_MAX, whatever it claims, and
of large ones all threads together hold one.
"""
from libc.stdint cimport int32_t
from libc.string cimport memset

from kbroker.ext.atomics cimport atomic_exchange_i32
from kbroker.ext.batch cimport (
    BATCH_BAD_RECORD,
    BATCH_BAD_TIMESTAMP,
    BATCH_BOMB,
    BATCH_NO_KEY,
    BATCH_OK,
    BATCH_TOO_LARGE,
    batch_parse,
    batch_validate_records,
)
from kbroker.ext.batch_build cimport (
    DECOMPRESSED_BYTES_MAX,
    DECOMPRESSED_FREELY_BYTES_MAX,
    batch_decompress,
    batch_recompress,
    large_batch_begin,
    large_batch_end,
)
from kbroker.ext.broker cimport broker_of
from kbroker.ext.compression cimport CODEC_LZ4, buffer_free, codec_library
from kbroker.ext.compression_lz4 cimport lz4_is_kafkas
from kbroker.ext.connection cimport LOG_LINE_BYTES
from kbroker.ext.log_ring cimport LOG_ERROR, net_log_text
from kbroker.ext.posix cimport snprintf
from kbroker.ext.produce_wire cimport bad_records_find


cdef int check_records(const uint8_t* p, const BatchRules* rules, BatchInfo* info, size_t limit,
                       int32_t* bad_left, BadRecords* bad) noexcept nogil:
    cdef Buffer records
    cdef int32_t first = -1
    cdef int code
    memset(&records, 0, sizeof(Buffer))
    if info.compression == CODEC_LZ4 and not lz4_is_kafkas(p + RECORDS_OFFSET,
                                                           info.length - RECORDS_OFFSET):
        return BATCH_BAD_RECORD  # INVALID_RECORD, which no client tries again
    code = batch_decompress(p, info, limit, &records)
    if code == BATCH_OK:
        code = batch_validate_records(records.p, records.p + records.n, rules, info, &first)
    if code == BATCH_NO_KEY or code == BATCH_BAD_TIMESTAMP:
        bad_records_find(records.p, records.p + records.n, rules, info, bad_left, bad)
    buffer_free(&records)
    return code


cdef int rewrite_within(size_t limit, Log* log, const uint8_t* p, const BatchRules* rules,
                        BatchInfo* info, Rewritten* out, int32_t* bad_left,
                        BadRecords* bad) noexcept nogil:
    cdef int32_t codec = log.cfg.compression_type
    cdef int code = BATCH_OK
    memset(out, 0, sizeof(Rewritten))
    if info.compression != 0:
        code = check_records(p, rules, info, limit, bad_left, bad)
    if code != BATCH_OK or codec < 0 or codec == info.compression:
        return code
    code = batch_recompress(p, info, codec, log.cfg.compression_level, limit, &out.buffer)
    if code != BATCH_OK:
        return code
    out.batch = out.buffer.p
    code = batch_parse(out.batch, out.batch + out.buffer.n, &out.info)
    # The header was copied; what the records said about it still holds.
    out.info.max_timestamp = info.max_timestamp
    out.info.patch_max_timestamp = info.patch_max_timestamp
    return BATCH_TOO_LARGE if out.info.length > rules.max_message_bytes else code


cdef int rewrite_batch(Log* log, const uint8_t* p, const BatchRules* rules, BatchInfo* info,
                       Rewritten* out, int32_t* bad_left, BadRecords* bad) noexcept nogil:
    cdef int code = rewrite_within(DECOMPRESSED_FREELY_BYTES_MAX, log, p, rules, info, out,
                                   bad_left, bad)
    if code == BATCH_BOMB:
        large_batch_begin()
        code = rewrite_within(DECOMPRESSED_BYTES_MAX, log, p, rules, info, out, bad_left, bad)
        large_batch_end()
    return code


cdef void rewritten_free(Rewritten* rewritten) noexcept nogil:
    buffer_free(&rewritten.buffer)


cdef void tell_missing_codec(Net* net, int32_t codec) noexcept nogil:
    cdef char text[LOG_LINE_BYTES]
    if atomic_exchange_i32(&broker_of(net).told_codecs[codec], 1):
        return
    snprintf(text, LOG_LINE_BYTES, "produce refused: a topic's settings need a library that is not "
             "on this machine; install it and start the broker again; %s", codec_library(codec))
    net_log_text(net, LOG_ERROR, text)
