"""send_batch(): columns of every kind arrive as records, without an object for each."""

from __future__ import annotations

import ctypes
from collections import Counter
from typing import Any

import pytest

from kbroker.client.admin import create_partitions
from kbroker.client.cluster import Cluster
from kbroker.client.producer import Producer
from tests.client.reading import read_all
from tests.support import wire
from tests.support.processes import BrokerProcess


@pytest.fixture
def producer(target: BrokerProcess) -> Any:
    with Producer(bootstrap_servers=target.bootstrap, batch_size=3000) as producer:
        yield producer


def test_lists(target: BrokerProcess, producer: Producer, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    values = [None if i % 100 == 7 else b"%d" % i for i in range(5000)]
    keys = [b"k%d" % (i % 9) for i in range(5000)]
    headers = [None if i % 2 else {"n": b"%d" % i} for i in range(5000)]
    times = list(range(1_700_000_000_000, 1_700_000_005_000))
    sent = producer.send_batch(topic, values, keys, headers, times)
    assert len(sent) == 5000
    ranges = sent.result(60)
    assert sum(r.records for r in ranges) == 5000
    at = 0
    for each in ranges:
        assert (each.topic, each.partition, each.offset) == (topic, 0, at)
        at += each.records
    found = read_all(target.bootstrap, topic, 5000)
    assert [r.value for r in found] == values
    assert [r.key for r in found] == keys
    assert [r.headers for r in found] == [list((h or {}).items()) for h in headers]
    assert [r.timestamp_ms for r in found] == times


def test_partitions(target: BrokerProcess, producer: Producer, topic: str) -> None:
    wire.create_topic(target.port, topic, 3)
    values = [b"%d" % i for i in range(3000)]
    sent = producer.send_batch(topic, values, partition=[i % 3 for i in range(3000)])
    by_partition = [0, 0, 0]
    for each in sent.result(60):
        assert each.offset == by_partition[each.partition]
        by_partition[each.partition] += each.records
    assert by_partition == [1000] * 3
    producer.send_batch(topic, [b"x"] * 500, partition=2).result(60)
    found = read_all(target.bootstrap, topic, 3500, 3)
    assert [r.value for r in found if r.partition == 1] == values[1::3]
    assert sum(r.partition == 2 for r in found) == 1500
    keyed = producer.send_batch(topic, values, [b"%d" % (i % 50) for i in range(3000)])
    expected = [producer.send(topic, b"", b"%d" % i).partition for i in range(50)]
    told = {p: sum(r.records for r in keyed.result(60) if r.partition == p) for p in range(3)}
    assert told == {p: 60 * expected.count(p) for p in range(3)}


def test_a_callable_partitioner_is_asked(target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 3)
    keys = [b"%d" % (i % 50) if i % 7 else None for i in range(1000)]
    told: list[tuple[bytes | None, bytes | None]] = []

    def choose(topic: str, key: bytes | None, value: bytes | None, partitions: int) -> int:
        told.append((key, value))
        return int(value or 0) % partitions if key is None else 2

    with Producer(bootstrap_servers=target.bootstrap, partitioner_class=choose) as producer:
        values = [b"%d" % i for i in range(1000)]
        ranges = producer.send_batch(topic, values, keys).result(60)
        assert told == list(zip(keys, values, strict=True))
        expected = Counter(i % 3 if key is None else 2 for i, key in enumerate(keys))
        assert Counter({p: sum(r.records for r in ranges if r.partition == p)
                        for p in range(3)}) == expected  # fmt: skip
        producer.send_batch(topic, values, keys, partition=0).result(60)
        assert len(told) == 1000, "where the partition is told nobody is asked"


def test_a_partition_that_is_null_is_the_key_s(
    target: BrokerProcess, producer: Producer, topic: str
) -> None:
    arrow = pytest.importorskip("pyarrow")
    wire.create_topic(target.port, topic, 3)
    keys = [b"%d" % i for i in range(90)]
    told = arrow.array([None if i % 3 else 1 for i in range(90)], arrow.int32())
    ranges = producer.send_batch(topic, [b""] * 90, keys, partition=told).result(60)
    expected = Counter(producer.send(topic, b"", key).partition if i % 3 else 1
                       for i, key in enumerate(keys))  # fmt: skip
    assert {p: sum(r.records for r in ranges if r.partition == p) for p in range(3)} == expected


def test_partitions_that_are_added_meanwhile(
    target: BrokerProcess, producer: Producer, topic: str
) -> None:
    wire.create_topic(target.port, topic, 1)
    producer.send(topic, b"").result(60)
    with Cluster(target.bootstrap, timeout_s=20) as cluster:
        create_partitions(cluster, {topic: 200}).checked()
    sent = producer.send_batch(topic, [b"x"] * 2000, partition=[i % 200 for i in range(2000)])
    ranges = sent.result(60)
    assert sum(r.records for r in ranges) == 2000
    assert {r.partition for r in ranges} == set(range(200))


def test_what_is_wrong_is_named(producer: Producer, target: BrokerProcess, topic: str) -> None:
    wire.create_topic(target.port, topic, 1)
    with pytest.raises(TypeError, match="value: bytes is one value"):
        producer.send_batch(topic, b"abc")
    with pytest.raises(TypeError, match="value: NoneType is one value"):
        producer.send_batch(topic, None)
    with pytest.raises(TypeError, match="value 300: str is not bytes") as raised:
        producer.send_batch(topic, [b""] * 300 + ["x"])
    # What came before the chunk with the bad one is sent.
    assert len(raised.value.delivery) == 256
    with pytest.raises(ValueError, match="key: 2 where there are 3 values"):
        producer.send_batch(topic, [b""] * 3, [b""] * 2)
    for field, given in {"timestamp": {"timestamps_ms": [1, "x"]},
                         "partition": {"partition": [0, 1 << 63]}}.items():  # fmt: skip
        with pytest.raises(TypeError, match=f"{field}: a sequence of whole numbers"):
            producer.send_batch(topic, [b""] * 2, **given)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="timestamp 1: -4 ms"):
        producer.send_batch(topic, [b""] * 2, timestamps_ms=[1, -4])
    with pytest.raises(ValueError, match=r"partition: topic .* has 1"):
        producer.send_batch(topic, [b""] * 2, partition=[0, 1])
    with pytest.raises(TypeError, match="an array of 1 dimensions with format '<i'"):
        producer.send_batch(topic, (ctypes.c_int32 * 3)(1, 2, 3))
    assert producer.send_batch(topic, []).result(60) == []


def test_partitions_that_numpy_counted(target: BrokerProcess, topic: str) -> None:
    """By send(), send_batch() and a partitioner."""
    numpy = pytest.importorskip("numpy")
    wire.create_topic(target.port, topic, 3)
    one, two = numpy.int64(1), numpy.uint8(2)
    with Producer(
        bootstrap_servers=target.bootstrap, partitioner_class=lambda *_: numpy.int32(0)
    ) as producer:
        assert producer.send(topic, b"", partition=one).result(60).partition == 1
        assert producer.send(topic, b"").result(60).partition == 0
        for given, partition in ((two, 2), (None, 0), (numpy.array([1]), 1)):
            told = producer.send_batch(topic, [b""], partition=given).result(60)
            assert [each.partition for each in told] == [partition]
        for wrong in (numpy.int64(-1), numpy.float64(1), True, "1"):
            with pytest.raises((ValueError, TypeError), match="partition: "):
                producer.send(topic, b"", partition=wrong)


def test_numpy(target: BrokerProcess, producer: Producer, topic: str) -> None:
    numpy = pytest.importorskip("numpy")
    wire.create_topic(target.port, topic, 1)
    fixed = numpy.array([b"%d" % i for i in range(1000)])
    rows = numpy.arange(4000, dtype="u1").reshape(1000, 4)
    objects = numpy.array([b"a", None, b"ccc"], dtype=object)
    times = numpy.arange(1000) + 1_700_000_000_000
    producer.send_batch(topic, fixed, rows, timestamps_ms=times)
    producer.send_batch(topic, fixed[::2], rows[::2])
    producer.send_batch(topic, objects).result(60)
    found = read_all(target.bootstrap, topic, 1503)
    assert [r.value for r in found[:1000]] == list(fixed)
    assert [r.key for r in found[:1000]] == [row.tobytes() for row in rows]
    assert [r.timestamp_ms for r in found[:1000]] == list(times)
    assert [r.value for r in found[1000:1500]] == list(fixed[::2])
    assert [r.key for r in found[1000:1500]] == [row.tobytes() for row in rows[::2]]
    assert [r.value for r in found[1500:]] == [b"a", None, b"ccc"]


def test_times_of_numpy_and_pandas(
    target: BrokerProcess, producer: Producer, topic: str
) -> None:
    numpy = pytest.importorskip("numpy")
    pandas = pytest.importorskip("pandas")
    wire.create_topic(target.port, topic, 1)
    ms = numpy.arange(100) * 86_400_000 + 1_700_006_400_000
    for unit in ("D", "s", "ms", "us", "ns"):
        times = ms.astype("datetime64[ms]").astype(f"datetime64[{unit}]")
        producer.send_batch(topic, [b""] * 100, timestamps_ms=times).result(60)
    for series in (pandas.Series(times), pandas.Series(times).dt.tz_localize("UTC")):
        producer.send_batch(topic, [b""] * 100, timestamps_ms=series).result(60)
    found = [r.timestamp_ms for r in read_all(target.bootstrap, topic, 700)]
    assert found == 7 * (ms // 86_400_000 * 86_400_000).tolist()
    times[7] = "NaT"
    for given in (times, pandas.Series(times)):
        with pytest.raises(ValueError, match="timestamp 7: NaT is no time"):
            producer.send_batch(topic, [b""] * 100, timestamps_ms=given)


def test_arrow(target: BrokerProcess, producer: Producer, topic: str) -> None:
    arrow = pytest.importorskip("pyarrow")
    wire.create_topic(target.port, topic, 2)
    values = [None if i % 10 == 3 else b"%d" % i * (i % 30) for i in range(1000)]
    keys = [f"k{i}" for i in range(1000)]
    headers = [[("a", b"1"), ("b", None)] if i % 2 else [] for i in range(1000)]
    batch = arrow.record_batch(
        {
            "value": arrow.array(values, arrow.binary()),
            "key": arrow.array(keys, arrow.large_string()),
            "headers": arrow.array(headers, arrow.map_(arrow.string(), arrow.binary())),
            "timestamp": arrow.array(range(1000), arrow.timestamp("us")),
            "partition": arrow.array([i % 2 for i in range(1000)], arrow.int32()),
        }
    )
    producer.send_batch(topic, batch).result(60)
    producer.send_batch(topic, batch.slice(500, 100)).result(60)
    producer.send_batch(topic, arrow.array(values).view(arrow.binary()), partition=0).result(60)
    found = read_all(target.bootstrap, topic, 2100, 2)
    for partition in range(2):
        mine = [r for r in found if r.partition == partition]
        wanted = list(range(partition, 1000, 2))
        wanted += list(range(500 + partition, 600, 2))
        assert [r.value for r in mine[: len(wanted)]] == [values[i] for i in wanted]
        assert [r.key for r in mine[: len(wanted)]] == [keys[i].encode() for i in wanted]
        assert [r.headers for r in mine[: len(wanted)]] == [headers[i] for i in wanted]
        assert [r.timestamp_ms for r in mine[: len(wanted)]] == [i // 1000 for i in wanted]
    kinds = (
        arrow.map_(arrow.string(), arrow.binary()),
        arrow.list_(arrow.struct({"key": arrow.string(), "value": arrow.binary()})),
    )
    for kind in kinds:
        column = arrow.array([*headers, None], kind)[500:]
        producer.send_batch(topic, [b"h"] * 501, headers=column, partition=0).result(60)
    producer.send_batch(topic, [b"h"], headers=arrow.nulls(1), partition=0).result(60)
    found = [r for r in read_all(target.bootstrap, topic, 3103, 2) if r.value == b"h"]
    assert [r.headers for r in found] == 2 * [*headers[500:], []] + [[]]
    with pytest.raises(TypeError, match="headers: give map<utf8, binary>"):
        producer.send_batch(topic, [b""], headers=arrow.array([b"x"]))
    with pytest.raises(ValueError, match="column 'other'"):
        producer.send_batch(topic, arrow.record_batch({"other": values}))


def test_chunks_of_arrow_are_combined(
    target: BrokerProcess, producer: Producer, topic: str
) -> None:
    arrow = pytest.importorskip("pyarrow")
    wire.create_topic(target.port, topic, 1)
    values = arrow.chunked_array([[b"a", None], [], [b"ccc"]], arrow.binary())
    table = arrow.table({"value": values, "key": arrow.array([b"1", b"2", b"3"])})
    producer.send_batch(topic, values, keys=values).result(60)
    producer.send_batch(topic, table, timestamps_ms=arrow.chunked_array([[1], [2, 3]])).result(60)
    producer.send_batch(topic, table.slice(1, 1)).result(60)
    found = read_all(target.bootstrap, topic, 7)
    assert [r.value for r in found] == 2 * [b"a", None, b"ccc"] + [None]
    assert [r.key for r in found] == [b"a", None, b"ccc", b"1", b"2", b"3", b"2"]
    assert [r.timestamp_ms for r in found[3:6]] == [1, 2, 3]
    for empty in (table.slice(3), table.schema.empty_table(), values.slice(3)):
        assert producer.send_batch(topic, empty).result(60) == []
