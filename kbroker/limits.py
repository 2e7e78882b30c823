"""The control plane's bounds that are not settings, the unit last in the name.

A bound that the data plane keeps as well is an enumerator in a `.pxd` of `ext/`; the unit tests
compare the two. Relations that the code relies on are asserted here.
"""

from __future__ import annotations

from typing import Final

# Strings on the wire carry an int16 length.
STRING_LENGTH_MAX_BYTES: Final = 32_767

# A topic name becomes a folder name `NAME-PARTITION`.
TOPIC_NAME_LENGTH_MAX_CHARS: Final = 249
FILE_NAME_LENGTH_MAX_BYTES: Final = 255

# Of log.dirs; the data plane's DIRECTORIES_MAX.
LOG_DIRS_MAX_COUNT: Final = 64

# What a decoder believes before it has seen the elements themselves; a request of the control plane
# has no more in all its arrays together.
ARRAY_ELEMENTS_MAX_COUNT: Final = 1_000_000
TAGGED_FIELDS_MAX_COUNT: Final = 10_000

# Record batch v2: its fixed header, and of that what the batch length does not count.
RECORD_BATCH_HEADER_BYTES: Final = 61
RECORD_BATCH_OVERHEAD_BYTES: Final = 12

# A block of producer ids, as the controller of Apache Kafka gives them out.
PRODUCER_ID_BLOCK_COUNT: Final = 1_000

# Partitions that one request may bring into being, as in Apache Kafka.
PARTITIONS_PER_REQUEST_MAX_COUNT: Final = 10_000
# Settings that one request may change, as in Apache Kafka.
CHANGES_PER_REQUEST_MAX_COUNT: Final = 10_000

# Member ids of one classic group that were given out and not joined with yet (KIP-394). Apache
# Kafka has no bound but their session timeout; a group's real members join within a round trip.
PENDING_MEMBERS_MAX_COUNT: Final = 10_000
# The same where ids are long, as a client may make its own up to 32 KiB.
PENDING_MEMBERS_MAX_CHARS: Final = 4_000_000

# Requests whose answers wait for something to happen: members that join, or wait for the leader.
PARKED_REQUESTS_MAX_COUNT: Final = 100_000
PARKED_REQUESTS_MAX_BYTES: Final = 256 * 1024 * 1024
# Members of classic groups whose join was answered and whose generation was not written yet: what
# they have sent is no request any more, and no record yet.
UNWRITTEN_MEMBERS_MAX_BYTES: Final = PARKED_REQUESTS_MAX_BYTES

# Metrics that clients push (KIP-714): instances that are known, as in Apache Kafka, what is kept of
# them, as it came; what one push may be when it is decompressed, and what a page shows of all.
TELEMETRY_INSTANCES_MAX_COUNT: Final = 16_384
TELEMETRY_KEPT_MAX_BYTES: Final = 64 * 1024 * 1024
TELEMETRY_PLAIN_MAX_BYTES: Final = 4 * 1024 * 1024
TELEMETRY_POINTS_MAX_COUNT: Final = 100_000

# The longest answer that a client takes from a broker, without its length.
CLIENT_FRAME_MAX_BYTES: Final = 268_435_456

assert TOPIC_NAME_LENGTH_MAX_CHARS + len("-99999") <= FILE_NAME_LENGTH_MAX_BYTES, (
    "the folder of a partition has room for five digits after the longest topic name"
)
assert RECORD_BATCH_OVERHEAD_BYTES < RECORD_BATCH_HEADER_BYTES, (
    "the length field lies inside the fixed header"
)
assert PARTITIONS_PER_REQUEST_MAX_COUNT <= ARRAY_ELEMENTS_MAX_COUNT, (
    "a request may name all the partitions it creates"
)
