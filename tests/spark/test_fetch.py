"""What an executor does, without a JVM: ranges, holes, what is lost, timeouts."""

from __future__ import annotations

import subprocess
import sys
import time
from typing import Any

import confluent_kafka
import pyarrow as pa
import pytest

from kbroker.client import Admin, Producer
from kbroker.client.errors import AuthenticationError
from pyspark_kbroker.errors import DataLossError, FetchTimeoutError
from pyspark_kbroker.fetch import read_range
from pyspark_kbroker.filters import Span
from pyspark_kbroker.options import read_options
from pyspark_kbroker.ranges import OffsetRange
from tests.spark.records import Sent, fill, make, numbered
from tests.support.processes import BrokerProcess
from tests.support.secured_kafka import PASSWORDS, SecuredKafka
from tests.support.tree import ROOT
from tests.support.waits import wait_for

WORKER = """
import gc, sys
from pyspark_kbroker.fetch import read_range
from pyspark_kbroker.options import read_options
from pyspark_kbroker.ranges import OffsetRange

brokers, topic = sys.argv[1:]
options = read_options({"kafka.bootstrap.servers": brokers, "subscribe": topic}, streaming=False)
rows = sum(batch.num_rows for batch in read_range(options, OffsetRange(topic, 0, 0, 10)))
modules = sum(1 for one in gc.get_objects() if type(one) is type(sys))
print(rows, "pandas" in sys.modules, modules)
"""


def options(broker: BrokerProcess, **more: str) -> Any:
    told = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": "any", **more}
    return read_options(told, streaming=False)


def read(
    broker: BrokerProcess, topic: str, start: int, end: int, times: Span | None = None, **more: str
) -> pa.Table:
    found = [*read_range(options(broker, **more), OffsetRange(topic, 0, start, end), times)]
    return pa.Table.from_batches(found) if found else pa.table({"offset": []})


def test_ranges_exactly(target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(1000, start_ms=1_700_000_000_000))
    for start, end in ((0, 1000), (0, 1), (17, 18), (17, 723), (999, 1000), (5, 5)):
        told = read(target, topic, start, end)
        assert told["offset"].to_pylist() == [*range(start, end)]
        if end > start:
            assert told["value"].to_pylist() == [b"%d" % n for n in range(start, end)]
    times = Span(1_700_000_000_000_000 + 10_000_000, 1_700_000_000_000_000 + 12_000_000)
    assert read(target, topic, 0, 1000, times)["offset"].to_pylist() == [10, 11, 12]


def test_header_names_that_are_not_utf8(target: BrokerProcess, topic: str) -> None:
    """As Java decodes them: Spark and functions in Python cannot read them otherwise."""
    make(target.bootstrap, topic)
    with Producer(bootstrap_servers=target.bootstrap) as producer:
        for name in ("fine", b"a\xffb".decode("utf-8", "surrogateescape"), "ü"):
            producer.send(topic, b"v", headers=[(name, b"1"), ("x", None)], partition=0)
    told = pa.Table.from_batches(
        [*read_range(options(target, includeHeaders="true"), OffsetRange(topic, 0, 0, 3))]
    )
    told.validate(full=True)
    assert [row[0]["key"] for row in told["headers"].to_pylist()] == ["fine", "a\ufffdb", "ü"]
    assert [row[1] for row in told["headers"].to_pylist()] == [{"key": "x", "value": None}] * 3


def test_every_column(target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic)
    sent = [
        Sent(b"v", b"k", timestamp_ms=1_700_000_000_123, headers=[("a", b"1"), ("a", None)]),
        Sent(None, b"", timestamp_ms=1_700_000_000_124),
        Sent(b"x" * 100_000, None, timestamp_ms=1_700_000_000_125, headers=[("ü", b"")]),
    ]
    fill(target.bootstrap, topic, sent)
    told = read(target, topic, 0, 3, includeHeaders="true")
    assert told["key"].to_pylist() == [b"k", b"", None]
    assert told["value"].to_pylist() == [b"v", None, b"x" * 100_000]
    assert told["topic"].to_pylist() == [topic] * 3
    assert told["partition"].to_pylist() == [0] * 3
    assert told["timestamp"].cast(pa.int64()).to_pylist() == [
        1_700_000_000_123_000 + 1000 * n for n in range(3)
    ]
    assert told["timestampType"].to_pylist() == [0] * 3
    assert told["headers"].to_pylist() == [
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}],
        None,
        [{"key": "ü", "value": b""}],
    ]
    assert "headers" not in read(target, topic, 0, 1).schema.names


def test_little_is_imported_and_left_to_the_collector(target: BrokerProcess, topic: str) -> None:
    """Spark's workers collect garbage after each task; modules that they pass over are frozen."""
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(10))
    told = subprocess.run(
        [sys.executable, "-c", WORKER, target.bootstrap, topic],
        capture_output=True,
        check=True,
        cwd=ROOT,
        text=True,
        timeout=60,
    )
    rows, pandas, modules = told.stdout.split()
    assert (rows, pandas) == ("10", "False")
    assert int(modules) < 20


def test_append_time(target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic, **{"message.timestamp.type": "LogAppendTime"})
    fill(target.bootstrap, topic, numbered(3))
    assert read(target, topic, 0, 3)["timestampType"].to_pylist() == [1] * 3


def test_records_deleted_before_the_range(target: BrokerProcess, topic: str) -> None:
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(100))
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.delete_records({(topic, 0): 40})
    with pytest.raises(DataLossError, match=rf"{topic}-0: \[10, 60\).*the log has \[40, 100\)"):
        read(target, topic, 10, 60)
    kept = {"failOnDataLoss": "false"}
    assert read(target, topic, 10, 60, **kept)["offset"].to_pylist() == [*range(40, 60)]
    assert read(target, topic, 10, 30, **kept)["offset"].to_pylist() == []
    assert read(target, topic, 40, 60)["offset"].to_pylist() == [*range(40, 60)]
    with pytest.raises(DataLossError, match=r"\[150, 160\)"):
        read(target, topic, 150, 160)
    assert read(target, topic, 150, 160, **kept)["offset"].to_pylist() == []


def test_a_log_that_is_another_one(target: BrokerProcess, topic: str) -> None:
    """Made anew or truncated while it is read: what it has from the position on is there."""
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(5))
    found = read_range(options(target, failOnDataLoss="false"), OffsetRange(topic, 0, 0, 20))
    assert [*next(found)["offset"].to_pylist()] == [*range(5)]
    with Admin(bootstrap_servers=target.bootstrap) as admin:
        admin.delete_topics([topic]).checked()
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(30))
    assert pa.Table.from_batches(found)["offset"].to_pylist() == [*range(5, 20)]


def test_the_log_ends_within_the_range(target: BrokerProcess, topic: str) -> None:
    """As that of a topic that was made anew; no task waits longer than it was told to."""
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(5))
    soon = {"kafkaConsumer.pollTimeoutMs": "1500"}
    begun = time.monotonic()
    lost = rf"{topic}-0: \[5, 9\) was to be read, and the log ends at 5 now; failOnDataLoss=false"
    with pytest.raises(DataLossError, match=lost):
        read(target, topic, 0, 9, **soon)
    assert time.monotonic() - begun >= 1.5
    assert read(target, topic, 3, 9, failOnDataLoss="false", **soon)["offset"].to_pylist() == [3, 4]


def test_nothing_comes(target: BrokerProcess, topic: str) -> None:
    """What is late is not lost: of a transaction that is open, of a broker that is not there."""
    make(target.bootstrap, topic)
    fill(target.bootstrap, topic, numbered(5))
    soon = {"kafkaConsumer.pollTimeoutMs": "1500", "failOnDataLoss": "false"}
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": f"of-{topic}"}
    )
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"held back", partition=0)
    producer.flush()
    with pytest.raises(FetchTimeoutError, match=r"from offset 5 on.*the log ends at 6"):
        read(target, topic, 0, 6, **soon)
    producer.abort_transaction()
    gone = options(target, **soon, **{"kafka.bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(FetchTimeoutError, match=r"127\.0\.0\.1:1"):
        [*read_range(gone, OffsetRange(topic, 0, 0, 9))]


@pytest.mark.long
def test_a_broker_that_asks_who_one_is(secured_kafka: SecuredKafka, topic: str) -> None:
    """The connector's own settings, as Java's clients take them."""
    make(secured_kafka.bootstrap, topic)
    fill(secured_kafka.bootstrap, topic, numbered(5))
    module = "org.apache.kafka.common.security.plain.PlainLoginModule required"
    told = {
        "kafka.bootstrap.servers": secured_kafka.sasl_bootstrap,
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.sasl.jaas.config": f'{module} username="alice" password="{PASSWORDS["alice"]}";',
    }
    assert read(secured_kafka, topic, 0, 5, **told).num_rows == 5
    wrong = told | {"kafka.sasl.jaas.config": f'{module} username="alice" password="guess";'}
    with pytest.raises(AuthenticationError):
        read(secured_kafka, topic, 0, 5, **wrong)


@pytest.mark.long
def test_holes_of_compaction(target: BrokerProcess, topic: str) -> None:
    compact = {
        "cleanup.policy": "compact",
        "segment.ms": "100",
        "min.cleanable.dirty.ratio": "0.01",
        "max.compaction.lag.ms": "200",
        "min.compaction.lag.ms": "0",
    }
    make(target.bootstrap, topic, **compact)

    end = 0

    def cleaned() -> bool:
        nonlocal end
        fill(target.bootstrap, topic, [Sent(b"v", b"same") for _ in range(50)])
        end += 50
        return read(target, topic, 0, end).num_rows < end - 60

    wait_for("the log to be cleaned", cleaned, 120, 0.5)
    offsets = read(target, topic, 0, end)["offset"].to_pylist()
    hole = next(o for o in range(end) if o not in set(offsets))
    for start, until in ((0, hole + 1), (hole, hole + 1), (hole, end), (0, end - 1)):
        told = read(target, topic, start, until, **{"kafkaConsumer.pollTimeoutMs": "60000"})
        assert told["offset"].to_pylist() == [o for o in offsets if start <= o < until]


def test_transactions(target: BrokerProcess, topic: str) -> None:
    """Markers have offsets and are no records; what was aborted is none but for who asks for it."""
    make(target.bootstrap, topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": target.bootstrap, "transactional.id": f"of-{topic}"}
    )
    producer.init_transactions()
    for turn in range(6):
        producer.begin_transaction()
        for n in range(10):
            producer.produce(topic, b"%d" % (10 * turn + n), partition=0)
        producer.flush()
        (producer.commit_transaction if turn % 2 == 0 else producer.abort_transaction)()
    committed = [11 * turn + n for turn in (0, 2, 4) for n in range(10)]
    every = [11 * turn + n for turn in range(6) for n in range(10)]
    begun = time.monotonic()
    for start, end in ((0, 66), (5, 50), (10, 11), (65, 66), (11, 22), (0, 65)):
        told = read(target, topic, start, end)["offset"].to_pylist()
        assert told == [o for o in committed if start <= o < end]
        more = {"kafka.isolation.level": "read_uncommitted"}
        told = read(target, topic, start, end, **more)["offset"].to_pylist()
        assert told == [o for o in every if start <= o < end]
    assert time.monotonic() - begun < 30  # nothing is waited for at the markers
