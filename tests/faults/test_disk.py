"""F6, F7: a full disk, and one whose sync fails: errors are told, nothing acknowledged is lost.

kbroker alone: Apache Kafka ends its process on either.
"""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Callable
from functools import partial
from os import truncate
from pathlib import Path
from typing import Any

import pytest

from kbroker import runfile
from kbroker.cli import root
from kbroker.cli.scrape import scrape
from kbroker.storage.full import FULL
from tests.faults.scenes import cut_last_batch, injected, newest_segment
from tests.reference.crafted_batches import Batch, Record, values_of
from tests.support import wire
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_loop
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FETCH, PRODUCE, ConnectionClosedError, WireConnection
from tests.wire.test_connections import fetch_body, produce_body

StartBroker = Callable[..., BrokerProcess]
KAFKA_STORAGE_ERROR = 56
VALUE_BYTES = 50_000
FREE_MIN = 24 << 20


def numbered(number: int, size: int = VALUE_BYTES) -> bytes:
    value = b"%d " % number + b"." * size
    return Batch(records=[Record(value)], base_timestamp=int(time.time() * 1000)).encode()


def produce(connection: WireConnection, topic: str, number: int) -> dict[str, Any]:
    answer = connection.call(PRODUCE, 9, produce_body(topic, numbered(number)))
    part: dict[str, Any] = answer["responses"][0]["partition_responses"][0]
    return part


def stored_numbers(port: int, topic: str) -> dict[int, int]:
    """Offset -> number of every record that is served."""
    found: dict[int, int] = {}
    with WireConnection(port) as connection:
        while True:
            answer = connection.call(FETCH, 11, fetch_body(topic, len(found)))
            part = answer["responses"][0]["partitions"][0]
            assert part["error_code"] == 0, part
            if not part["records"]:
                return found
            for offset, value in values_of(part["records"]):
                assert value is not None
                found[offset] = int(value.split(b" ")[0])


def produce_until_refused(
    connection: WireConnection, topic: str, number: int, acked: dict[int, int]
) -> int:
    """Note what is taken as {offset: number}; the number behind the one that was refused."""
    while True:
        part = produce(connection, topic, number)
        number += 1
        if part["error_code"] != 0:
            assert part["error_code"] == KAFKA_STORAGE_ERROR
            return number
        acked[part["base_offset"]] = number - 1


@pytest.mark.timeout(900)
@pytest.mark.parametrize("rounds", rounds(3, long=10, full=50))
def test_full_disk(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, rounds: int, tally: Tally
) -> None:
    """Refused with KAFKA_STORAGE_ERROR, read on, and written again when there is room."""
    need_loop()
    with LoopFilesystem(tmp_path, 64) as disk:
        filler = disk.path / "filler"
        settings = {"log.segment.bytes": "1048576", "log.retention.check.interval.ms": "300",
                    "log.segment.delete.delay.ms": "0"}  # fmt: skip
        broker = start_kbroker(settings, data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic)
        acked: dict[int, int] = {}
        number, half_bytes = 0, disk.free_bytes() // 2
        with WireConnection(broker.port) as connection:
            for _ in range(rounds):
                fill(disk, filler)
                number = produce_until_refused(connection, topic, number, acked)
                assert broker.is_running()
                check_served(broker, topic, acked)
                filler.unlink()
                acked |= wait_for("produce works again", lambda: retried(connection, topic), 30)
                make_room(connection, topic, max(acked))
                wait_for("old segments are gone", lambda: disk.free_bytes() > half_bytes, 30)
                acked = {o: n for o, n in acked.items() if o >= max(acked)}
        assert broker.stop() == 0
        assert "Traceback" not in broker.log_text()
        tally("F7", tried=rounds)
        cut_last_batch(broker.partition_dir(topic, 0))
        broker.start()
        with pytest.raises((AssertionError, ValueError)):
            check_served(broker, topic, acked)
        tally("F7", control=1)
        broker.kill()


@pytest.mark.timeout(300)
def test_no_room_for_what_only_the_journal_has(
    start_kbroker: StartBroker, topic: str, tmp_path: Path
) -> None:
    """The start is refused in one line, and the next one that has room brings all back."""
    need_loop()
    with LoopFilesystem(tmp_path, 64) as disk:
        filler = disk.path / "filler"
        broker = start_kbroker({}, data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic)
        with WireConnection(broker.port) as connection:
            acked = {produce(connection, topic, n)["base_offset"]: n for n in range(100)}
        broker.kill()
        truncate(newest_segment(broker.partition_dir(topic, 0)), 0)  # it never reached the disk
        fill(disk, filler)
        with pytest.raises(AssertionError, match=r"left: what was acknowledged .* nothing is lost"):
            broker.start()
        assert "Traceback" not in broker.log_text()
        filler.unlink()
        broker.start()
        check_served(broker, topic, acked)
        broker.kill()


@pytest.mark.timeout(300)
def test_a_full_disk_without_limits_is_told(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """By metrics, the status page, `kbroker status` and the log, from the first refusal until there
    is room."""
    need_loop()
    with LoopFilesystem(tmp_path, 64) as disk:
        filler = disk.path / "filler"
        broker = start_kbroker(data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic)
        told = partial(refused_as_told, broker, capsys)
        assert told() == {0, None}
        with WireConnection(broker.port) as connection:
            fill(disk, filler)
            number = produce_until_refused(connection, topic, 0, {})
            wait_for("it is told", lambda: told() == {1, FULL}, 60)
            produce_until_refused(connection, topic, number, {})
            filler.unlink()
            wait_for("it is told no longer", lambda: told() == {0, None}, 60)
            assert wait_for("produce works again", lambda: retried(connection, topic), 30)
        assert broker.stop() == 0
        lines = [line for line in broker.log_text().splitlines() if "file system of" in line]
        assert len(lines) == 2, lines
        assert "is full" in lines[0] and "again" in lines[1]
        assert broker.log_text().count("checkpoint failed") <= 3


def refused_as_told(broker: BrokerProcess, capsys: pytest.CaptureFixture[str]) -> set[Any]:
    """What the metric, /status and `kbroker status` say of refused produce."""
    info = runfile.running(broker.data_dir)
    assert info is not None
    address = info.http[0].removeprefix("http://")
    metric = scrape(address).value("kbroker_disk_refused")
    with urllib.request.urlopen(f"http://{address}/status", timeout=60) as page:
        status = json.load(page)["produce_refused"]
    assert root.run(["status", "-D", str(broker.data_dir), "-o", "json"]) == 0
    return {metric, status, json.loads(capsys.readouterr().out)["produce_refused"]}


@pytest.mark.timeout(300)
def test_free_space_is_kept_and_given_back(
    start_kbroker: StartBroker, topic: str, tmp_path: Path
) -> None:
    """kbroker.disk.free.bytes.min: the disk does not get full; room from outside counts too."""
    need_loop()
    with LoopFilesystem(tmp_path, 96) as disk:
        filler = disk.path / "filler"
        filler.write_bytes(bytes(8 << 20))
        settings = {"kbroker.disk.free.bytes.min": str(FREE_MIN), "log.segment.bytes": "1000000000",
                    "kbroker.journal.bytes.max": "16777216",
                    "kbroker.journal.buffer.bytes": "1048576"}  # fmt: skip
        broker = start_kbroker(settings, data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic)
        acked: dict[int, int] = {}
        with WireConnection(broker.port) as connection:
            produce_until_refused(connection, topic, 0, acked)
            assert FREE_MIN - (4 << 20) < disk.free_bytes() < FREE_MIN + (4 << 20)
            check_served(broker, topic, acked)
            filler.unlink()
            acked |= wait_for("produce works again", lambda: retried(connection, topic), 30)
        check_served(broker, topic, acked)
        assert broker.stop() == 0


@pytest.mark.long
@pytest.mark.timeout(300)
def test_free_space_is_kept_with_all_other_settings_left_alone(
    start_kbroker: StartBroker, topic: str, tmp_path: Path
) -> None:
    """Segments and journal are made for the small disk: there are closed ones to delete."""
    need_loop()
    with LoopFilesystem(tmp_path, 192) as disk:
        broker = start_kbroker(
            {"kbroker.disk.free.bytes.min": str(3 * FREE_MIN)}, data_dir=disk.path / "data"
        )
        wire.create_topic(broker.port, topic, 4)
        with WireConnection(broker.port) as connection:
            for number in range(4 * 192 * (1 << 20) // VALUE_BYTES // 2):  # twice the disk
                body = produce_body(topic, numbered(number))
                body["topic_data"][0]["partition_data"][0]["index"] = number % 4  # type: ignore[index]
                answer = connection.call(PRODUCE, 9, body)
                assert answer["responses"][0]["partition_responses"][0]["error_code"] == 0, number
                assert disk.free_bytes() > 3 * FREE_MIN - (8 << 20)
        journal = (disk.path / "data").glob(".kbroker-journal.*")
        assert 0 < sum(path.stat().st_size for path in journal) <= (192 << 20) // 8
        assert broker.stop() == 0


def retried(connection: WireConnection, topic: str) -> dict[int, int]:
    """{offset: number} of a record that was taken, or nothing."""
    part = produce(connection, topic, 10**9)
    return {part["base_offset"]: 10**9} if part["error_code"] == 0 else {}


def check_served(broker: BrokerProcess, topic: str, acked: dict[int, int]) -> None:
    """Each acknowledged record from the first one that still counts is served."""
    with WireConnection(broker.port) as connection:
        for offset, number in acked.items():
            answer = connection.call(FETCH, 11, fetch_body(topic, offset))
            part = answer["responses"][0]["partitions"][0]
            assert part["error_code"] == 0, part
            ((first, value), *_) = values_of(part["records"])
            assert first == offset
            assert value is not None
            assert value.startswith(b"%d " % number)


def make_room(connection: WireConnection, topic: str, offset: int) -> None:
    """DeleteRecords up to `offset`, so that the next round has a disk to fill again."""
    parts = [{"partition_index": 0, "offset": offset}]
    body = {"topics": [{"name": topic, "partitions": parts}], "timeout": 10_000}
    answer = connection.call(wire.DELETE_RECORDS, 2, body)
    assert answer["topics"][0]["partitions"][0]["error_code"] == 0


def fill(disk: LoopFilesystem, filler: Path) -> None:
    """A file that leaves two megabytes of the disk."""
    size = max(0, disk.free_bytes() - (2 << 20))
    with filler.open("wb") as file:
        file.write(bytes(size))


# --- failing syncs ------------------------------------------------------------------------------


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["1", "3", "1+", "7+"])
def test_failed_sync_is_final(
    start_kbroker: StartBroker, topic: str, when: str, tally: Tally
) -> None:
    """After one EIO nothing more is acknowledged, though the next sync would succeed.

    Whether the broker goes on with an offline directory or ends is its choice; what it
    acknowledged before is there after the next start.
    """
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    acked: dict[int, int] = {}
    refused = 0
    with injected(broker, "fdatasync,fsync", f"error=EIO:when={when}"):
        try:
            with WireConnection(broker.port, timeout_s=10) as connection:
                for number in range(30):
                    part = produce(connection, topic, number)
                    if part["error_code"] == 0:
                        assert not refused, "acknowledged after a failed sync"
                        acked[part["base_offset"]] = number
                    else:
                        assert part["error_code"] in (KAFKA_STORAGE_ERROR, 3, 5, 6), part
                        refused += 1
        except ConnectionClosedError:
            refused += 1
    assert refused
    broker.kill()
    broker.start()
    stored = stored_numbers(broker.port, topic)
    lost = sum(stored.get(offset) != number for offset, number in acked.items())
    tally("F6", tried=1, lost=lost)
    assert not lost
