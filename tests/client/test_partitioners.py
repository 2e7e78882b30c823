"""Partitioners: the partitions that Java's client and librdkafka pick; how the sticky one moves."""

from __future__ import annotations

import itertools
import math
import random
import zlib
from collections import Counter
from typing import Any

import confluent_kafka
import pytest

from kbroker.client.producer import Producer
from kbroker.ext.client_partition import hashes
from tests.client.reading import read_all
from tests.reference.murmur2 import murmur2
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

PARTITIONS = 7
KEYS = [random.Random(1).randbytes(n % 40) for n in range(1, 400)]

#: Of librdkafka's own unit test.
FNV1A = {
    b"kafka": 0xD33C4E1,
    b"giberish123456789": 0x77A58295,
    b"1234": 0x23BDD03,
    b"234": 0x2DEA3CD2,
    b"34": 0x740FA83E,
    b"4": 0x310CA263,
    b"": 0x7EE3623B,
}
#: Of Kafka's own unit test (int32).
MURMUR2 = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


def test_hashes() -> None:
    for key, value in FNV1A.items():
        assert hashes(key)[2] == value
    for key, value in MURMUR2.items():
        assert hashes(key)[0] == value & 0xFFFFFFFF
    for key in KEYS:
        assert hashes(key)[:2] == (murmur2(key), zlib.crc32(key))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("consistent", "consistent"),
        ("consistent_random", "consistent_random"),
        ("murmur2", "murmur2"),
        ("default", "murmur2_random"),
        ("fnv1a", "fnv1a"),
        ("fnv1a_random", "fnv1a_random"),
    ],
)
def test_the_same_partitions_as_librdkafka(
    kbroker: KbrokerProcess, topic: str, ours: str, theirs: str
) -> None:
    wire.create_topic(kbroker.port, topic, PARTITIONS)
    where: dict[bytes, int] = {}

    def note(error: Any, message: Any) -> None:
        assert error is None
        where[message.key()] = message.partition()

    foreign = confluent_kafka.Producer(
        {"bootstrap.servers": kbroker.bootstrap, "partitioner": theirs, "linger.ms": 5}
    )
    for key in KEYS:
        foreign.produce(topic, b"", key, on_delivery=note)
    assert foreign.flush(30) == 0
    with Producer(bootstrap_servers=kbroker.bootstrap, partitioner_class=ours) as producer:
        sent = {key: producer.send(topic, b"", key) for key in KEYS}
    random_key = b"" if ours == "consistent_random" else None
    assert {key: d.partition for key, d in sent.items() if key != random_key} == {
        key: partition for key, partition in where.items() if key != random_key
    }


def test_sticky_is_uniform_by_bytes(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 4)
    with Producer(
        bootstrap_servers=kbroker.bootstrap,
        batch_size=2000,
        partitioner_adaptive_partitioning_enable=False,
    ) as producer:
        sent = [producer.send(topic, b"." * (i % 300)) for i in range(20_000)]
        moves = sum(a.partition != b.partition for a, b in itertools.pairwise(sent))
        producer.flush(30)
        metrics = producer.metrics()
    size = Counter[int]()
    for number, delivery in enumerate(sent):
        size[delivery.partition] += number % 300
    # As uniform as so many fair draws are, of which one in four stays where it is.
    draws = moves * 4 / 3
    quarter = size.total() / 4
    spread = quarter * math.sqrt(3 / draws)
    assert len(size) == 4
    assert max(abs(s - quarter) for s in size.values()) < 5 * spread
    # A move comes with one full batch or two, never within one.
    assert moves <= metrics["batch-total"]


def test_round_robin_and_ignored_keys(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 4)
    with Producer(bootstrap_servers=kbroker.bootstrap, partitioner_class="round_robin") as producer:
        found = [producer.send(topic, b"", b"key").partition for _ in range(8)]
        assert found == [0, 1, 2, 3] * 2
    with Producer(
        bootstrap_servers=kbroker.bootstrap, partitioner_ignore_keys=True, batch_size=500
    ) as producer:
        found = [producer.send(topic, b"." * 50, b"key").partition for _ in range(1000)]
        assert len(set(found)) == 4


def test_a_callable(kbroker: KbrokerProcess, topic: str) -> None:
    wire.create_topic(kbroker.port, topic, 4)

    def choose(name: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        assert (name, partitions) == (topic, 4)
        return int(key or b"0")

    with Producer(bootstrap_servers=kbroker.bootstrap, partitioner_class=choose) as producer:
        for number in range(4):
            assert producer.send(topic, b"v", b"%d" % number).result(60).partition == number
        with pytest.raises(ValueError, match="partition: the partitioner chose 9 of 4"):
            producer.send(topic, b"v", b"9")
    assert len(read_all(kbroker.bootstrap, topic, 4, 4)) == 4
