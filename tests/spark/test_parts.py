"""What needs no broker and no JVM: options, offsets as JSON, ranges, filters."""

from __future__ import annotations

import datetime
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from kbroker.client import TopicPartition
from kbroker.client.offsets import EARLIEST, LATEST
from pyspark_kbroker.errors import OptionError
from pyspark_kbroker.filters import Pushed
from pyspark_kbroker.offsets import from_json, to_json
from pyspark_kbroker.options import read_options, write_options
from pyspark_kbroker.ranges import OffsetRange, limited, split

HERE = {"kafka.bootstrap.servers": "localhost:9092"}
A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


@pytest.mark.parametrize(
    ("streaming", "options", "text"),
    [
        (False, {"subscribe": "t"}, "bootstrap.servers"),
        (False, HERE, "subscribe, subscribePattern, assign"),
        (False, {**HERE, "subscribe": "a", "assign": "{}"}, "both subscribe and assign"),
        (False, {**HERE, "subscribe": " ,"}, "names no topic"),
        (False, {**HERE, "subscribePattern": "a("}, "is no pattern"),
        (False, {**HERE, "subscribePattern": "[a-z&&[^b]]"}, "Java's: Possible set intersection"),
        (False, {**HERE, "subscribePattern": "\\p{Alpha}+"}, r"Java's: bad escape \\p"),
        (False, {**HERE, "assign": '{"a":[-1]}'}, r'write {"topic":\[0,1\]}'),
        (False, {**HERE, "subscribe": "a", "startingOffset": "earliest"},
         "did you mean startingOffsets?"),
        (False, {**HERE, "subscribe": "a", "kafka.isolation.lvl": "x"},
         "did you mean kafka.isolation.level?"),
        (False, {**HERE, "subscribe": "a", "kafka.fetch.max.wait.ms": "soon"},
         "kafka.fetch.max.wait.ms"),
        (False, {**HERE, "subscribe": "a", "kafka.auto.offset.reset": "earliest"},
         "startingOffsets"),
        (False, {**HERE, "subscribe": "a", "kafka.value.deserializer": "x"}, "cast the column"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": "latest"}, "cannot have latest"),
        (False, {**HERE, "subscribe": "a", "endingOffsets": '{"a":{"0":-2}}'}, "earliest"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": '{"a":{"0":-3}}'}, "below -2"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": '{"a":{"x":1}}'}, "numbers"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": "oldest"}, "neither earliest"),
        (False, {**HERE, "subscribe": "a", "startingTimestamp": "9", "endingTimestamp": "8"},
         "startingTimestamp and endingTimestamp: 9 is after 8"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": '{"a":{"0":7,"1":3}}',
                 "endingOffsets": '{"a":{"0":-1,"1":2}}'}, "a-1: 3 is after 2"),
        (False, {**HERE, "subscribe": "a", "startingOffsetsByTimestamp": '{"a":{"0":7}}',
                 "endingOffsetsByTimestamp": '{"a":{"0":6}}'}, "a-0: 7 is after 6"),
        (False, {**HERE, "subscribePattern": " "}, "the pattern is empty"),
        (False, {**HERE, "subscribe": "a", "minPartitions": "0"}, "1 is the least"),
        (False, {**HERE, "subscribe": "a", "minPartitions": "2147483648"}, "is the most"),
        (False, {**HERE, "subscribe": "a", "startingTimestamp": str(1 << 63)}, "is the most"),
        (False, {**HERE, "subscribe": "a", "kafkaConsumer.pollTimeoutMs": "9" * 400}, "most"),
        (True, {**HERE, "subscribe": "a", "maxTriggerDelay": "9" * 400 + "ms"}, "too long"),
        (False, {**HERE, "assign": '{"a":[2147483648]}'}, "write"),
        (False, {**HERE, "subscribe": "a", "startingOffsets": '{"a":{"2147483648":1}}'}, "range"),
        (False, {**HERE, "subscribe": "a", "endingOffsets": f'{{"a":{{"0":{1 << 63}}}}}'}, "range"),
        (False, {**HERE, "subscribe": "a", "includeHeaders": "yes"}, "neither true nor false"),
        (False, {**HERE, "subscribe": "a", "startingOffsetsByTimestampStrategy": "next"},
         "neither error nor latest"),
        (True, {**HERE, "subscribe": "a", "endingOffsets": "latest"}, "a stream has no end"),
        (True, {**HERE, "subscribe": "a", "maxTriggerDelay": "soon"}, "is no time"),
        (True, {**HERE, "subscribe": "a", "minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
         "is above"),
    ],
)  # fmt: skip
def test_wrong_options(streaming: bool, options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        read_options(options, streaming=streaming)


def test_options_as_spark_gives_them() -> None:
    told = {
        "KAFKA.Bootstrap.Servers": "h:1",
        "subscribe": "b, a,b",
        "startingoffsets": '{"a":{"0":5,"1":-2}}',
        "endingTIMESTAMP": "1700000000000",
        "endingOffsets": "latest",
        "maxTriggerDelay": "2m",
        "topic": "of-a-write",
        "kafka.group.id": "nobody",
        "kafka.linger.ms": "5",
    }
    found = read_options(told, streaming=False)
    assert found.subscription.topics == ("a", "b")
    assert found.starting.offsets == {A0: 5, A1: EARLIEST}
    assert found.ending is not None
    assert found.ending.time_ms == 1_700_000_000_000
    assert found.max_trigger_delay_s == 120
    assert found.read_committed
    assert pickle.loads(pickle.dumps(found)) == found
    assert not read_options(
        {**HERE, "subscribe": "a", "kafka.isolation.level": "read_uncommitted"}, streaming=False
    ).read_committed


def test_defaults_of_the_official_connector() -> None:
    batch = read_options({**HERE, "subscribe": "a"}, streaming=False)
    stream = read_options({**HERE, "subscribe": "a"}, streaming=True)
    assert (batch.starting.edge, stream.starting.edge) == (EARLIEST, LATEST)
    assert batch.ending is not None
    assert batch.ending.edge == LATEST
    assert stream.ending is None
    assert batch.fail_on_data_loss
    assert not batch.include_headers
    assert (batch.poll_timeout_s, batch.tries, stream.max_trigger_delay_s) == (120, 4, 900)


def test_wrong_options_of_a_write() -> None:
    with pytest.raises(OptionError, match="exactlyOnce"):
        write_options({**HERE, "kafka.transactional.id": "x"})
    with pytest.raises(OptionError, match="acks"):
        write_options({**HERE, "kafka.acks": "some"})
    more = {"checkpointLocation": "/c", "asyncProgressTrackingEnabled": "true"}
    assert write_options({**HERE, "topic": " t ", **more}).topic == "t"


READ_ONLY = ("auto.offset.reset", "enable.auto.commit", "key.deserializer", "value.deserializer")
WRITTEN_ONLY = ("key.serializer", "value.serializer", "transactional.id")
NEVER = ("interceptor.classes",)


def test_settings_of_the_other_way_are_let_pass() -> None:
    """As the official connector does, so that a job has one set of them."""
    every = {"kafka.auto.include.jmx.reporter": "false"}
    for_reads = {f"kafka.{name}": "x" for name in READ_ONLY}
    for_writes = {f"kafka.{name}": "x" for name in WRITTEN_ONLY}
    assert write_options({**HERE, **every, **for_reads}).topic is None
    read = read_options({**HERE, **every, **for_writes, "subscribe": "a"}, streaming=True)
    assert "auto.include.jmx.reporter" not in read.kafka
    for name in (*READ_ONLY, *NEVER):
        with pytest.raises(OptionError, match=f"kafka.{name} cannot be set"):
            read_options({**HERE, "subscribe": "a", f"kafka.{name}": "x"}, streaming=True)
    for name in (*WRITTEN_ONLY, *NEVER):
        with pytest.raises(OptionError, match=f"kafka.{name} cannot be set"):
            write_options({**HERE, f"kafka.{name}": "x"})


def test_passwords_are_not_shown() -> None:
    secret = {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN",
              "kafka.sasl.jaas.config": 'M required username="u" password="hush";'}  # fmt: skip
    assert "hush" not in repr(read_options({**HERE, **secret, "subscribe": "a"}, streaming=True))
    assert "hush" not in repr(write_options({**HERE, **secret}))


@given(
    st.dictionaries(
        st.builds(TopicPartition, st.text(min_size=1, max_size=9), st.integers(0, 99)),
        st.integers(-2, 2**62),
    )
)
def test_json_and_back(offsets: dict[TopicPartition, int]) -> None:
    assert from_json(to_json(offsets)) == offsets


RANGES = st.lists(
    st.builds(
        lambda p, start, n: OffsetRange("t", p, start, start + n),
        st.integers(0, 3),
        st.integers(0, 50),
        st.integers(0, 1000),
    ),
    max_size=6,
)


@given(RANGES, st.none() | st.integers(1, 40), st.none() | st.integers(1, 300))
def test_tasks_are_the_ranges(
    ranges: list[OffsetRange], least: int | None, most: int | None
) -> None:
    tasks = split(ranges, least, most)
    told = [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]
    assert [(t.partition, offset) for t in tasks for offset in range(t.start, t.end)] == told
    assert all(len(task) for task in tasks)
    if most is not None:
        assert all(len(task) <= most for task in tasks)
    if least is not None and len(told) >= 40 * len(ranges):
        assert len(tasks) >= min(least, len(told)) * 0.5


def test_tasks_of_a_large_and_small_partitions() -> None:
    ranges = [OffsetRange("t", 0, 0, 1000), OffsetRange("t", 1, 0, 10), OffsetRange("t", 2, 5, 5)]
    found = split(ranges, 5, None)
    assert [len(task) for task in found if task.partition == 0] == [250] * 4
    assert [len(task) for task in found if task.partition == 1] == [10]


@given(
    st.integers(1, 500), st.lists(st.tuples(st.integers(0, 99), st.integers(0, 400)), max_size=8)
)
def test_a_trigger_takes_no_more_than_its_limit(most: int, parts: list[tuple[int, int]]) -> None:
    start = {TopicPartition("t", i): first for i, (first, _) in enumerate(parts)}
    end = {TopicPartition("t", i): first + n for i, (first, n) in enumerate(parts)}
    found = limited(start, end, most)
    assert all(start[w] <= found[w] <= end[w] for w in start)
    taken = sum(found[w] - start[w] for w in start)
    filled = sum(n > 0 for _, n in parts)
    total = sum(n for _, n in parts)
    assert taken == total if total <= most else 0 < taken <= most + filled
    assert all(found[w] > start[w] for w in start if end[w] > start[w])  # nobody starves


def test_what_filters_leave() -> None:
    pushed = Pushed()
    late = datetime.datetime(2024, 1, 1, 0, 0, 0, 500, tzinfo=datetime.UTC)
    taken = [
        IsNotNull(("offset",)),
        GreaterThan(("offset",), 10),
        GreaterThanOrEqual(("offset",), 5),
        LessThan(("offset",), 20),
        GreaterThanOrEqual(("timestamp",), late),
        LessThanOrEqual(("partition",), 1),
        In(("topic",), ("a", "c")),
        Not(EqualTo(("partition",), 0)),
    ]
    left = [
        EqualTo(("value",), b"x"),
        StringStartsWith(("topic",), "a"),
        In(("offset",), (1, 2)),
        IsNotNull(("key",)),
        Not(GreaterThan(("partition",), 3)),
        EqualTo(("timestamp",), None),
    ]
    assert pushed.push([*taken, *left]) == left
    assert (pushed.offsets.first, pushed.offsets.last) == (11, 19)
    assert pushed.times_us.first == 1_704_067_200_000_500
    assert [where for where in (A0, A1, B0) if pushed.keeps(where)] == [A1]
    assert pickle.loads(pickle.dumps(pushed)) == pushed


def test_splitting_many_partitions_takes_no_time_of_their_square() -> None:
    """Each range is compared with no other one."""

    class Alone(OffsetRange):
        def __eq__(self, other: object) -> bool:
            raise AssertionError("ranges are compared")

        __hash__ = OffsetRange.__hash__

    ranges = [Alone("t", number, 0, 10) for number in range(1000)]
    assert len(split(ranges, 3000, None)) == 3000
