"""Every bound that is not a setting, with its unit last in the name.

A bound that the data plane keeps as well is a constant of the same name in its module under
`ext/`; the unit tests compare them. Relations that the code relies on are asserted here.
"""

from __future__ import annotations

from typing import Final

# Strings on the wire carry an int16 length.
STRING_LENGTH_MAX_BYTES: Final = 32_767

# A topic name becomes a folder name `NAME-PARTITION`, marked `.UUID-delete` or `-stray` later.
TOPIC_NAME_LENGTH_MAX_CHARS: Final = 249
FILE_NAME_LENGTH_MAX_BYTES: Final = 255

# What a decoder believes before it has seen the elements themselves.
ARRAY_ELEMENTS_MAX_COUNT: Final = 1_000_000
TAGGED_FIELDS_MAX_COUNT: Final = 10_000

# Frames: int32 length, then at least api key, api version and correlation id.
FRAME_LENGTH_FIELD_BYTES: Final = 4
REQUEST_HEADER_MIN_BYTES: Final = 8
FRAME_MAX_BYTES: Final = 2_147_483_647

# Record batch v2: fixed header, and the smallest record (length, attributes, two deltas, key,
# value and header count of one byte each).
RECORD_BATCH_HEADER_BYTES: Final = 61
RECORD_MIN_BYTES: Final = 7
# Base offset and batch length are outside of what the batch length counts.
RECORD_BATCH_OVERHEAD_BYTES: Final = 12

# Idempotence: the last batches of a producer that a partition remembers.
PRODUCER_BATCHES_REMEMBERED_MAX_COUNT: Final = 5

# A producer id block, as the controller of Apache Kafka gives them out.
PRODUCER_ID_BLOCK_COUNT: Final = 1_000

# Index entries: offset (relative int32) and position; timestamp and relative offset.
OFFSET_INDEX_ENTRY_BYTES: Final = 8
TIME_INDEX_ENTRY_BYTES: Final = 12

# Partitions of one topic, and of the broker, that one request may bring into being.
PARTITIONS_PER_REQUEST_MAX_COUNT: Final = 10_000

assert TOPIC_NAME_LENGTH_MAX_CHARS + len("-99999") <= FILE_NAME_LENGTH_MAX_BYTES, (
    "the folder of a partition has room for five digits after the longest topic name"
)
assert RECORD_BATCH_OVERHEAD_BYTES < RECORD_BATCH_HEADER_BYTES, (
    "the length field lies inside the fixed header"
)
assert REQUEST_HEADER_MIN_BYTES < FRAME_MAX_BYTES, "a frame holds at least its header"
assert ARRAY_ELEMENTS_MAX_COUNT <= FRAME_MAX_BYTES, "an array of one-byte elements fits a frame"
assert PARTITIONS_PER_REQUEST_MAX_COUNT <= ARRAY_ELEMENTS_MAX_COUNT, (
    "a request may name all the partitions it creates"
)
