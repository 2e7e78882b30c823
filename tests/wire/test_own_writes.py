"""Records of acks=1 are found by what is asked next, though the disk has not got them yet.

Nothing but a reader hurries a flush here: without one it is a minute away.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.reference.crafted_batches import Batch, Record, values_of
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.transactional import WireProducer
from tests.support.wire import (
    DELETE_RECORDS,
    FETCH,
    METADATA,
    OFFSET_FOR_LEADER_EPOCH,
    PRODUCE,
    WireConnection,
)
from tests.wire.test_connections import fetch_body, produce_body
from tests.wire.test_list_offsets import LATEST, MAX_TIMESTAMP, body, results

NONE, OUT_OF_RANGE = 0, 1
LONGEST_MS = 60_000
TIME = 1_700_000_000_000
QUICK_S = 20
"""What is not found in a minute is answered long before it."""


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KbrokerProcess]:
    settings = {"kbroker.flush.interval.ms.max": str(LONGEST_MS)}
    started = KbrokerProcess(tmp_path_factory.mktemp("own"), settings)
    started.start()
    try:
        yield started
    finally:
        started.kill()


@pytest.fixture
def connection(broker: KbrokerProcess, topic: str) -> Iterator[WireConnection]:
    wire.create_topic(broker.port, topic, 3)
    with WireConnection(broker.port, timeout_s=QUICK_S) as opened:
        yield opened


def write(connection: WireConnection, topic: str, count: int = 3) -> int:
    """A batch with acks=1; the offset behind it."""
    records = [Record(b"%d" % at, timestamp_delta=at) for at in range(count)]
    data = Batch(records=records, base_timestamp=TIME).encode()
    answer = connection.call(PRODUCE, 9, produce_body(topic, data, acks=1))
    part = answer["responses"][0]["partition_responses"][0]
    assert part["error_code"] == NONE
    return int(part["base_offset"]) + count


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("version", [1, 2, 4, 6, 11])
def test_the_end_is_behind_own_writes(
    connection: WireConnection, topic: str, version: int, level: int
) -> None:
    fields = {"isolation_level": level} if version >= 2 else {}
    for number in range(1, 6):
        end = write(connection, topic)
        asked = body((topic, [(0, LATEST), (1, LATEST)]), **fields)
        assert results(connection, version, asked) == [(NONE, end, -1), (NONE, 0, -1)]
        assert end == 3 * number


def test_a_search_by_time_finds_own_writes(connection: WireConnection, topic: str) -> None:
    for number in range(5):
        first = write(connection, topic) - 3
        found = results(connection, 7, body((topic, [(0, MAX_TIMESTAMP)])))
        assert found == [(NONE, 2, TIME + 2)], "the first with the greatest"
        if number == 0:
            found = results(connection, 7, body((topic, [(0, TIME + 1)])))
            assert found == [(NONE, first + 1, TIME + 1)]
    later = Batch(records=[Record(b"later")], base_timestamp=TIME + 1000).encode()
    connection.call(PRODUCE, 9, produce_body(topic, later, acks=1))
    assert results(connection, 7, body((topic, [(0, TIME + 500)]))) == [(NONE, 15, TIME + 1000)]


def delete(connection: WireConnection, topic: str, offset: int) -> tuple[int, int]:
    part = {"partition_index": 0, "offset": offset}
    asked = {"topics": [{"name": topic, "partitions": [part]}], "timeout": 30_000}
    (done,) = connection.call(DELETE_RECORDS, 2, asked)["topics"][0]["partitions"]
    return done["error_code"], done["low_watermark"]


def test_own_writes_are_deleted(connection: WireConnection, topic: str) -> None:
    end = write(connection, topic)
    assert delete(connection, topic, end - 1) == (NONE, end - 1)
    end = write(connection, topic)
    assert delete(connection, topic, -1) == (NONE, end)
    end = write(connection, topic)
    assert delete(connection, topic, end + 1) == (OUT_OF_RANGE, -1)
    assert delete(connection, topic, end) == (NONE, end)


def test_the_current_epoch_ends_behind_own_writes(connection: WireConnection, topic: str) -> None:
    end = write(connection, topic)
    (about,) = connection.call(METADATA, 9, {"topics": [{"name": topic}]})["topics"]
    epoch = about["partitions"][0]["leader_epoch"]
    part = {"partition": 0, "current_leader_epoch": -1, "leader_epoch": epoch}
    asked = {"replica_id": -1, "topics": [{"topic": topic, "partitions": [part]}]}
    answer = connection.call(OFFSET_FOR_LEADER_EPOCH, 4, asked)
    (told,) = answer["topics"][0]["partitions"]
    assert (told["error_code"], told["end_offset"]) == (NONE, end)


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("patience", [(0, 1), (0, 0), (10_000, 0), (1, 1 << 20)])
def test_a_fetch_that_does_not_wait_reads_own_writes(
    connection: WireConnection, topic: str, level: int, patience: tuple[int, int]
) -> None:
    max_wait, min_bytes = patience
    for _ in range(5):
        end = write(connection, topic, 1)
        asked = fetch_body(
            topic, end - 1, max_wait=max_wait, min_bytes=min_bytes, isolation_level=level
        )
        part = connection.call(FETCH, 11, asked)["responses"][0]["partitions"][0]
        assert values_of(part["records"]) == [(end - 1, b"0")]


def test_an_open_transaction_holds_up_no_reader(
    connection: WireConnection, topic: str, broker: BrokerProcess
) -> None:
    """With read_committed the end is before it, and a fetch is empty: both at once when the disk
    has the records."""
    producer = WireProducer(broker, topic)
    producer.init()
    producer.send(topic, 0, b"held")
    write(connection, topic)
    asked = body((topic, [(0, LATEST)]), isolation_level=1)
    assert results(connection, 7, asked) == [(NONE, 0, -1)]
    write(connection, topic)
    asked = fetch_body(topic, 0, isolation_level=1)
    part = connection.call(FETCH, 11, asked)["responses"][0]["partitions"][0]
    assert (part["records"], part["last_stable_offset"]) == (b"", 0)
    assert part["high_watermark"] == 7
