"""What is said of a batch that is refused (see produce_refuse.pxd)."""
from libc.stdint cimport int32_t, uint8_t

from kbroker.ext.atomics cimport atomic_load_i64
from kbroker.ext.batch cimport (
    ATTRIBUTES_OFFSET, BATCH_BAD_CRC, BATCH_BAD_LENGTH, BATCH_BAD_MAGIC, BATCH_BAD_TIMESTAMP,
    BATCH_EMPTY, BATCH_NO_CODEC, BATCH_NO_KEY, BATCH_OK, BATCH_OLD_MAGIC, BATCH_TOO_LARGE,
    BATCH_TRAILING, BATCH_ZSTD_TOO_EARLY, CODEC_MASK, LENGTH_OFFSET, RECORDS_OFFSET, BatchInfo,
    batch_error_code, batch_error_message, batch_parse,
)
from kbroker.ext.broker cimport count_refused
from kbroker.ext.compression cimport codec_available
from kbroker.ext.endian cimport load_i32
from kbroker.ext.produce_codec cimport tell_missing_codec
from kbroker.ext.produce_wire cimport bad_records_find
from kbroker.ext.wire cimport Slice

cdef enum:
    RECORD_OVERHEAD_OF_OLD = 14     # the least length of a message of magic 0

cdef const char* REJECTED = b"One or more records have been rejected"
cdef const char* BAD_TIMESTAMP = (
    b"One or more records have been rejected due to invalid timestamp"
)


cdef inline bint came_to_the_log(int code) noexcept nogil:
    """Was it a check that Kafka makes at the log, whose answers tell where the log starts?"""
    return not (code == BATCH_EMPTY or code == BATCH_OLD_MAGIC or code == BATCH_TRAILING
                or code == BATCH_ZSTD_TOO_EARLY or code == BATCH_BAD_MAGIC
                or code == BATCH_BAD_LENGTH or code == BATCH_BAD_CRC
                or code == BATCH_TOO_LARGE)


cdef void list_bad_records(Produce* produce, PartitionResult* result) noexcept nogil:
    """Those of a batch that is not compressed; else they were found when it was decompressed."""
    cdef const uint8_t* batch = result.records.p
    cdef BatchInfo info
    if batch_parse(batch, batch + result.records.n, &info) == BATCH_OK and info.compression == 0:
        bad_records_find(batch + RECORDS_OFFSET, batch + info.length, &produce.rules, &info,
                         &produce.bad_left, &result.bad)


cdef inline bint is_shorter_than_any(const Slice* records) noexcept nogil:
    """A length that no format has ever had: Kafka says so in words."""
    return load_i32(records.p + LENGTH_OFFSET) < RECORD_OVERHEAD_OF_OLD


cdef void refuse_codec(Produce* produce, PartitionResult* result) noexcept nogil:
    """The library that one of the two codecs needs, the batch's or the topic's, is missing."""
    cdef int32_t codec = result.records.p[ATTRIBUTES_OFFSET + 1] & CODEC_MASK
    if codec_available(codec):
        codec = result.log.cfg.compression_type
    result.message = batch_error_message(BATCH_NO_CODEC)
    tell_missing_codec(produce.request.net, codec)


cdef void produce_refuse(Produce* produce, PartitionResult* result, int code) noexcept nogil:
    result.error = batch_error_code(code)
    count_refused(produce.broker, code, result.records.n)
    if came_to_the_log(code):
        result.log_start = atomic_load_i64(&result.log.log_start)
    elif code == BATCH_BAD_MAGIC or (code == BATCH_BAD_LENGTH
                                     and is_shorter_than_any(&result.records)):
        result.message = batch_error_message(code)
    if code == BATCH_NO_KEY or code == BATCH_BAD_TIMESTAMP:
        result.message = BAD_TIMESTAMP if code == BATCH_BAD_TIMESTAMP else REJECTED
        list_bad_records(produce, result)
    if code == BATCH_NO_CODEC:
        refuse_codec(produce, result)
