"""Record batch, format version 2 (KIP-98): parse, validate, patch in place, iterate.

    offset  bytes  field                      covered by the CRC
    0       8      base offset                no
    8       4      length of what follows     no
    12      4      partition leader epoch     no
    16      1      magic, 2                   no
    17      4      CRC-32C of bytes 21..end   no
    21      2      attributes                 yes: bits 0-2 codec, 3 timestamp type
                                              (1 = LogAppendTime), 4 transactional,
                                              5 control, 6 delete horizon
    23      4      last offset delta          yes
    27      8      base timestamp, ms         yes
    35      8      max timestamp, ms          yes
    43      8      producer id, -1 for none   yes
    51      2      producer epoch             yes
    53      4      base sequence              yes
    57      4      number of records          yes
    61      ...    records (compressed as one block where a codec is named)

All pointers are borrowed. Everything here is free of state; the caller says which bytes may
be written. BATCH_* codes below 0 are errors; batch_error_code and batch_error_message turn
them into Kafka's error code and a text.
"""
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from kbroker.ext.record cimport Header, Record, next_header


cdef enum:
    BASE_OFFSET_OFFSET = 0
    LENGTH_OFFSET = BASE_OFFSET_OFFSET + 8
    LEADER_EPOCH_OFFSET = LENGTH_OFFSET + 4
    MAGIC_OFFSET = LEADER_EPOCH_OFFSET + 4
    CRC_OFFSET = MAGIC_OFFSET + 1
    ATTRIBUTES_OFFSET = CRC_OFFSET + 4
    LAST_OFFSET_DELTA_OFFSET = ATTRIBUTES_OFFSET + 2
    BASE_TIMESTAMP_OFFSET = LAST_OFFSET_DELTA_OFFSET + 4
    MAX_TIMESTAMP_OFFSET = BASE_TIMESTAMP_OFFSET + 8
    PRODUCER_ID_OFFSET = MAX_TIMESTAMP_OFFSET + 8
    PRODUCER_EPOCH_OFFSET = PRODUCER_ID_OFFSET + 8
    BASE_SEQUENCE_OFFSET = PRODUCER_EPOCH_OFFSET + 2
    COUNT_OFFSET = BASE_SEQUENCE_OFFSET + 4
    RECORDS_OFFSET = COUNT_OFFSET + 4        # = bytes of the header
    LENGTH_PREFIX_BYTES = LENGTH_OFFSET + 4  # bytes that `length` does not count

cdef enum:
    CODEC_MASK = 0x07
    TIMESTAMP_TYPE_BIT = 0x08
    TRANSACTIONAL_BIT = 0x10
    CONTROL_BIT = 0x20
    DELETE_HORIZON_BIT = 0x40
    NO_TIMESTAMP = -1
    NO_PRODUCER_ID = -1
    NO_SEQUENCE = -1

cdef enum:                           # Kafka error code
    BATCH_OK = 0                     # 0
    BATCH_SHORT = 1                  # the span ends before the batch does (torn tail)
    BATCH_BAD_LENGTH = -1            # 2   length field below the smallest batch
    BATCH_BAD_MAGIC = -2             # 2   neither 0, 1 nor 2
    BATCH_BAD_CRC = -3               # 2
    BATCH_EMPTY = -4                 # 87  not one whole batch
    BATCH_OLD_MAGIC = -5             # 87  0 or 1
    BATCH_TRAILING = -6              # 87  more bytes behind the batch
    BATCH_BAD_BASE_OFFSET = -7       # 87  a producer's batch starts at 0
    BATCH_TOO_LARGE = -8             # 10
    BATCH_BAD_CODEC = -9             # 76  codes 5 to 7
    BATCH_ZSTD_TOO_EARLY = -10       # 76  Produce before version 7
    BATCH_BAD_OFFSET_RANGE = -11     # 87  last offset delta below 0
    BATCH_BAD_COUNT = -12            # 87  count below 1
    BATCH_COUNT_MISMATCH = -13       # 87  count and last offset delta disagree
    BATCH_CONTROL = -14              # 87  control batch from a client
    BATCH_BAD_SEQUENCE = -15         # 87  producer id with a sequence below 0
    BATCH_BAD_RECORD = -17           # 87  a length or varint in a record is wrong
    BATCH_RECORDS_LEFT = -18         # 87  bytes left after the last record
    BATCH_BAD_OFFSET_DELTA = -19     # 87  a record's offset delta is not its index
    BATCH_NO_KEY = -20               # 87  compacted topic, record without key
    BATCH_BAD_TIMESTAMP = -21        # 32  outside before/after max
    BATCH_APPEND_TIME = -22          # 32  a producer may not say LogAppendTime
    BATCH_BAD_COMPRESSION = -23      # 2   the records do not decompress
    BATCH_BOMB = -24                 # 87  they decompress to more than the limit
    BATCH_NO_MEMORY = -25            # -1
    BATCH_NO_CODEC = -26             # 76  codec library not on this machine


ctypedef struct BatchInfo:
    int64_t base_offset
    int64_t base_timestamp        # ms
    int64_t max_timestamp         # ms; after batch_validate what must be stored
    int64_t producer_id
    uint32_t crc
    int32_t length                # bytes of the whole batch, the 12 of the prefix included
    int32_t leader_epoch
    int32_t last_offset_delta
    int32_t base_sequence
    int32_t count
    int16_t attributes
    int16_t producer_epoch
    int8_t magic
    int8_t compression            # CODEC_*; 5 to 7 are unknown
    bint transactional
    bint control
    bint log_append_time
    bint patch_max_timestamp      # batch_validate: the header's max timestamp was wrong


ctypedef struct BatchRules:       # what of a topic's and a request's settings decides
    int64_t now_ms
    int64_t timestamp_before_max_ms
    int64_t timestamp_after_max_ms
    int32_t max_message_bytes
    bint log_append_time          # message.timestamp.type
    bint compacted                # cleanup.policy has compact: keys needed
    bint from_client              # False for the control plane's own batches
    bint zstd_allowed             # Produce version 7 and up


ctypedef struct BadRecord:
    int32_t index
    int code                      # BATCH_NO_KEY or BATCH_BAD_TIMESTAMP


ctypedef struct RecordCursor:
    const uint8_t* p
    const uint8_t* end
    int64_t base_offset
    int64_t base_timestamp
    int64_t append_timestamp      # every record's timestamp where log_append_time
    int32_t left                  # records to come
    bint log_append_time


# ---- read

# Header fields. BATCH_OK, BATCH_SHORT when [p, end) ends before the batch does, or the code of
# a length or magic that cannot be. Nothing behind the header is looked at. With BATCH_SHORT
# `out` is filled as well if the whole header is there, and else out.length is 0.
cdef int batch_parse(const uint8_t* p, const uint8_t* end, BatchInfo* out) noexcept nogil

# The stored CRC against the bytes; batch_parse has said BATCH_OK.
cdef bint batch_crc_ok(const uint8_t* p, const BatchInfo* info) noexcept nogil

# Everything Kafka checks before an append, in its order. [p, end) is what one partition of a
# Produce request holds. bad_record is the index of the first bad record, else -1. The records
# of a compressed batch are not looked at (of their timestamps the header's two are):
# batch_validate_records does that, once they are decompressed.
cdef int batch_validate(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules,
    BatchInfo* out, int32_t* bad_record,
) noexcept nogil

# The part of it that walks records [p, end) (decompressed), for a batch whose header passed.
cdef int batch_validate_records(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules,
    BatchInfo* info, int32_t* bad_record,
) noexcept nogil

# The first `most` records that fail, of a batch whose structure is sound; how many they are.
# One pass, for listing what a refused batch suffers from.
cdef int32_t batch_bad_records(
    const uint8_t* p, const uint8_t* end, const BatchRules* rules, const BatchInfo* info,
    BadRecord* out, int32_t most,
) noexcept nogil

cdef int16_t batch_error_code(int code) noexcept nogil
cdef const char* batch_error_message(int code) noexcept nogil

# ---- patch in place

cdef void batch_set_base_offset(uint8_t* p, int64_t base_offset) noexcept nogil
cdef void batch_set_leader_epoch(uint8_t* p, int32_t leader_epoch) noexcept nogil

# Timestamp type and max timestamp, CRC brought along in time independent of the length.
# `info` must be of this batch, CRC checked; its fields follow.
cdef void batch_set_timestamps(
    uint8_t* p, BatchInfo* info, bint log_append_time, int64_t max_timestamp
) noexcept nogil

# ---- iterate. Batches: batch_parse, then p += info.length.

# Records of an uncompressed batch at p, or of a compressed one whose records the caller holds
# decompressed at [records, records_end) (see batch_build).
cdef void records_init(
    RecordCursor* c, const BatchInfo* info,
    const uint8_t* records, const uint8_t* records_end,
) noexcept nogil

# 1 and a record, 0 at the end, BATCH_BAD_RECORD.
cdef int next_record(RecordCursor* c, Record* out) noexcept nogil
