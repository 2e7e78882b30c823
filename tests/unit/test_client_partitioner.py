"""murmur2 and the keyed partition, against values that the Java client gives."""

from __future__ import annotations

import pytest

from kbroker.client.partitioner import murmur2, partition_for_key

# From org.apache.kafka.common.utils.UtilsTest, testMurmur2; Java's int, signed.
JAVA = [
    (b"21", -973932308),
    (b"foobar", -790332482),
    (b"a-little-bit-long-string", -985981536),
    (b"a-little-bit-longer-string", -1486304829),
    (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
    (b"abc", 479470107),
]


@pytest.mark.parametrize(("key", "expected"), JAVA)
def test_murmur2_is_javas(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF


def test_partition_is_never_negative() -> None:
    for key, expected in JAVA:
        assert partition_for_key(key, 7) == (expected & 0x7FFFFFFF) % 7
    assert partition_for_key(b"", 1) == 0


def test_partition_is_that_of_kafka_python() -> None:
    partitioner = pytest.importorskip("kafka.partitioner.default")
    for number in range(500):
        key = b"k" * (number % 13) + str(number).encode()
        assert murmur2(key) == partitioner.murmur2(key) & 0xFFFFFFFF
