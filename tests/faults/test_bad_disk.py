"""F8, F9 and F10: a disk that fails a sync once, that cannot be read, and that hangs."""

from __future__ import annotations

import subprocess
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from kbroker import runfile
from tests.faults.scenes import injected, lost_without_the_end
from tests.faults.test_disk import produce, stored_numbers
from tests.reference.crafted_batches import parse_batches
from tests.support import wire
from tests.support.load import Load
from tests.support.loopfs import LoopFilesystem
from tests.support.needs import need_command, need_loop
from tests.support.oracle import judge
from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds, scaled
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.support.wire import FETCH, ConnectionClosedError, WireConnection
from tests.wire.test_connections import fetch_body

LONG = pytest.mark.long
PARTITIONS = 2
REQUEST_TIMED_OUT = 7
StartBroker = Callable[..., BrokerProcess]

# --- F8: a sync that fails once -----------------------------------------------------------------


def fill(disk: LoopFilesystem) -> Path:
    """Nothing more fits on this file system: a sparse image in it gets nothing that it lacks. Where
    something has become free since, that goes as well."""
    filler = disk.path / "filler"
    with filler.open("ab", buffering=0) as file, suppress(OSError):
        while True:
            file.write(bytes(1 << 20))
    subprocess.run(["sync", "-f", disk.path], check=False)
    return filler


def produce_while_it_lasts(port: int, topic: str, most: int) -> dict[int, int]:
    """{offset: number} of what was acknowledged until the first refusal."""
    acked: dict[int, int] = {}
    with suppress(ConnectionClosedError, OSError), WireConnection(port, timeout_s=60) as connection:
        for number in range(most):
            part = produce(connection, topic, number)
            if part["error_code"]:
                break
            acked[part["base_offset"]] = number
    return acked


def lost_by_a_failed_sync(
    start: StartBroker, topic: str, folder: Path, durability: str
) -> tuple[int, int]:
    """How many records were acknowledged, and how many of them are not there afterwards."""
    settings = {"kbroker.durability": durability, "kbroker.journal.bytes.max": "16777216"}
    with LoopFilesystem(folder, 192, write_cache=True) as disk:
        assert disk.device is not None
        broker = start(settings, data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic)
        disk.sync()
        filler = fill(disk.device)
        acked = produce_while_it_lasts(broker.port, topic, 600)
        broker.kill()
        disk.unmount()
        filler.unlink()
        disk.device.restore_power()  # a sync alone: what was freed may not be free yet
        disk.mount()
        broker.start()
        stored = stored_numbers(broker.port, topic)
        broker.kill()
    return len(acked), sum(stored.get(offset) != number for offset, number in acked.items())


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("rounds", rounds(1, long=5, full=20))
def test_a_sync_that_fails_once(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, rounds: int, tally: Tally
) -> None:
    """The device has no room for what the file system counts as written: the first sync says so,
    the second would not. What was acknowledged before is there."""
    need_loop()
    for number in range(rounds):
        acked, lost = lost_by_a_failed_sync(
            start_kbroker, f"{topic}-{number}", tmp_path / str(number), "fsync"
        )
        tally("F8", tried=1, lost=lost)
        assert acked and not lost


@pytest.mark.timeout(600)
def test_control_who_does_not_sync_hears_of_nothing(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, tally: Tally
) -> None:
    need_loop()
    _, lost = lost_by_a_failed_sync(start_kbroker, topic, tmp_path, "page-cache")
    tally("F8", control=lost)
    assert lost


# --- F9: reads that fail ------------------------------------------------------------------------

RECORDS = 60
FAILURES = 10  # one reading of all meets three to five


def read_bravely(port: int, topic: str) -> tuple[dict[int, int], int]:
    """{offset: number} of all there is, and how often a read failed on the way. What fails is
    asked for again; an answer that is cut short counts for nothing, as does a broken batch."""
    found: dict[int, int] = {}
    failed = 0

    def read_on() -> bool:
        nonlocal failed
        try:
            with WireConnection(port, timeout_s=60) as connection:
                answer = connection.call(FETCH, 11, fetch_body(topic, len(found)))
        except ConnectionClosedError:
            failed += 1
            return False
        part = answer["responses"][0]["partitions"][0]
        if part["error_code"]:
            failed += 1
            return False
        for batch in parse_batches(part["records"]):
            if not batch.get("crc_is_right"):
                failed += "crc_is_right" in batch
                break
            for record in batch["records"]:
                offset = batch["base_offset"] + record["offset_delta"]
                found[offset] = int(record["value"].split(b" ")[0])
        return len(found) >= RECORDS

    wait_for("everything is read", read_on, 120)
    return found, failed


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "every", [7, *(pytest.param(n, marks=LONG) for n in scaled((4, 11), full=(4, 5, 11, 13)))]
)
def test_reads_that_fail(
    start_kbroker: StartBroker, topic: str, every: int, tally: Tally
) -> None:
    """EIO of every so many pread and sendfile calls: told, or the connection ends; never wrong
    bytes. When the disk can be read again, it is. (A fetch makes two or three such calls: of every
    second or third, one would fail in each.)"""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    acked = produce_while_it_lasts(broker.port, topic, RECORDS)
    failed = wrong = 0

    def enough() -> bool:
        nonlocal failed, wrong
        found, times = read_bravely(broker.port, topic)
        failed += times
        wrong += sum(found.get(offset) != number for offset, number in acked.items())
        return failed >= FAILURES

    with injected(broker, "pread64,sendfile", f"error=EIO:when={every}+{every}"):
        wait_for("enough reads have failed", enough, 600)
    tally("F9", tried=failed, lost=wrong)
    assert not wrong
    assert stored_numbers(broker.port, topic) == acked
    assert broker.is_running()


@pytest.mark.timeout(300)
def test_control_a_read_that_lies(start_kbroker: StartBroker, topic: str, tally: Tally) -> None:
    """sendfile says that it sent what it did not: the bytes that follow stand in the wrong place,
    and this reader notices."""
    broker = start_kbroker()
    wire.create_topic(broker.port, topic)
    produce_while_it_lasts(broker.port, topic, RECORDS)
    lies = 0
    with (
        injected(broker, "sendfile", "retval=20000:when=1..3"),
        WireConnection(broker.port, timeout_s=5) as connection,
    ):
        try:
            answer = connection.call(FETCH, 11, fetch_body(topic, 0))
            part = answer["responses"][0]["partitions"][0]
            lies = sum(not one.get("crc_is_right") for one in parse_batches(part["records"]))
        except (TimeoutError, ConnectionClosedError, AssertionError, ValueError):
            lies = 1
    tally("F9", control=lies)
    assert lies


# --- F10: a disk that hangs ---------------------------------------------------------------------


@contextmanager
def frozen(disk: LoopFilesystem, seconds: float, thawed: Path) -> Iterator[None]:
    """Whoever writes to the file system waits for so long. A process of its own makes `thawed` and
    thaws it: who waits there cannot even be killed."""
    program = need_command("fsfreeze", "util-linux")
    script = f'sleep {seconds}; : > "$2"; exec "$0" --unfreeze "$1"'
    thaw = subprocess.Popen(["sh", "-c", script, program, disk.path, thawed])
    try:
        subprocess.run([program, "--freeze", disk.path], check=True)
        yield
    finally:
        assert thaw.wait(seconds + 60) == 0


def stood_still(load: Load, disk: LoopFilesystem, seconds: float, thawed: Path) -> bool:
    """Freezes the disk under the load; whether the acknowledgements were seen to stop."""
    counts = [-1, -2]

    def quiet() -> bool:
        counts.append(load.acked_count())
        return counts[-1] == counts[-2] or thawed.exists()

    with frozen(disk, seconds, thawed):
        wait_for("no more acknowledgements", quiet, 120, 0.5)
        stood = not thawed.exists()
    thawed.unlink()
    return stood


@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    # The disk does nothing while it is frozen: what matters is each length, once or twice.
    "holds_s", rounds((2,), long=(1.5, 5, 1.5, 10), full=(1.5, 5) * 8 + (10, 30, 30, 30))
)
def test_a_frozen_disk(
    start_kbroker: StartBroker, topic: str, tmp_path: Path, holds_s: tuple[float, ...],
    tally: Tally,
) -> None:  # fmt: skip
    """While it is frozen nothing is acknowledged; then all goes on, and nothing is lost."""
    need_loop()
    with LoopFilesystem(tmp_path, 1024) as disk:
        broker = start_kbroker(data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic, PARTITIONS)
        with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS) as load:
            for seconds in holds_s:
                load.wait_for_acks(200)
                while not stood_still(load, disk, seconds, tmp_path / "thawed"):
                    load.wait_for_acks(200)
            load.wait_for_acks(200)
            histories = load.finish()
        verdict = judge(broker.port, topic, PARTITIONS, histories)
        tally("F10", tried=len(holds_s), lost=verdict.count())
        control = lost_without_the_end(broker, topic, PARTITIONS, histories)
        tally("F10", control=control)
        broker.kill()
    assert not verdict.faults()
    assert control


def page(broker: BrokerProcess, path: str) -> str:
    """What the broker says of itself, within ten seconds."""
    info = runfile.running(broker.data_dir)
    assert info is not None
    with urllib.request.urlopen(f"{info.http[0]}/{path}", timeout=10) as answer:
        return str(answer.read().decode())


def is_complete(broker: BrokerProcess) -> bool:
    return "\nkbroker_scrape_complete 1\n" in page(broker, "metrics")


@LONG
def test_a_broker_on_a_frozen_disk_tells_of_itself(
    start_kbroker: StartBroker, topic: str, tmp_path: Path
) -> None:
    """Those who write hold the locks of their logs as long as the disk hangs; metrics and status
    are told all the same, of such logs as they were."""
    need_loop()
    thawed = tmp_path / "thawed"
    with LoopFilesystem(tmp_path, 1024) as disk:
        broker = start_kbroker(data_dir=disk.path / "data")
        wire.create_topic(broker.port, topic, PARTITIONS)
        with Load(broker.bootstrap, topic, tmp_path, partitions=PARTITIONS) as load:
            load.wait_for_acks(200)
            assert is_complete(broker)
            with frozen(disk, 20, thawed):
                wait_for("a scrape that leaves out", lambda: not is_complete(broker), 15, 0.2)
                log_ends = f'kafka_log_log_logendoffset{{topic="{topic}",partition="0"}}'
                assert log_ends in page(broker, "metrics")
                assert '"produce_refused"' in page(broker, "status")
                assert not thawed.exists(), "it was thawed before all was told"
            wait_for("a whole scrape", lambda: is_complete(broker), 60, 0.2)
            load.finish()
        broker.kill()
