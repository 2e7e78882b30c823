"""A write-ahead log that cannot be read to its end at the start after a crash.

The start is refused, names the file and the reason, and removes nothing. When the file can be read
again, every acknowledged record is served. `kbroker log repair --skip-wal-damage` is the way on
without it. Control: a start without a WAL loses the records.
"""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.native import Words, preloaded, shared_library
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally

SLOW_S = 60
RECORDS = 50
BLOCK = 4096
#: tests/support/failing.c.
KINDS, PASS, CODE, _, STAY, CHANCE, DRAW = range(7)
OPEN, READ = 128, 256


@pytest.fixture
def killed(start_kbroker: Callable[..., BrokerProcess], topic: str) -> KbrokerProcess:
    """A broker that was killed; its segments have lost all that was not synced."""
    broker = start_kbroker({"kbroker.journal.bytes.max": "16777216"})
    assert isinstance(broker, KbrokerProcess)
    wire.create_topic(broker.port, topic, 1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number).result(SLOW_S)
    broker.kill()
    for segment in (broker.data_dir / f"{topic}-0").glob("*.log"):
        os.truncate(segment, 0)
    return broker


def wal_file(broker: BrokerProcess) -> Path:
    (path,) = broker.data_dir.glob(".kbroker-journal.*")
    return path


def refused_start(broker: KbrokerProcess) -> str:
    """Start it; what it says when it refuses."""
    done = subprocess.run(
        broker.command(), env=broker.environment(), capture_output=True, text=True,
        timeout=SLOW_S, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done
    assert "Traceback" not in done.stderr, done
    return done.stderr


def stored(broker: BrokerProcess, topic: str) -> list[bytes]:
    """All records that it serves."""
    found: list[bytes] = []
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek_to_beginning()
        end = consumer.end_offsets([partition])[partition]
        while end and (not found or consumer.position(partition) < end):
            found += [record.value or b"" for record in consumer.poll(10.0)]
    return found


ALL = [b"%d" % number for number in range(RECORDS)]


def flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(
    "fault",
    [(OPEN, errno.EACCES), (OPEN, errno.EMFILE), (READ, errno.ENOMEM), (READ, errno.EIO)],
    ids=["open-EACCES", "open-EMFILE", "read-ENOMEM", "read-EIO"],
)
def test_file_that_cannot_be_read_refuses_the_start(
    killed: KbrokerProcess, topic: str, tmp_path: Path, fault: tuple[int, int], tally: Tally
) -> None:
    call, code = fault
    path = wal_file(killed)
    before = path.read_bytes()
    with Words(tmp_path / "words", 7) as words:
        words[CODE], words[STAY], words[KINDS] = code, 1, call
        killed.environ = {
            "LD_PRELOAD": preloaded(shared_library("failing", tmp_path)),
            "KBROKER_TEST_FAIL": str(words.path),
            "KBROKER_TEST_FAIL_ROOT": str(path),
        }
        said = refused_start(killed)
    assert f"{path}: {os.strerror(code)}" in said
    assert path.read_bytes() == before
    killed.environ = {}
    killed.start()
    lost = len(set(ALL) - set(stored(killed, topic)))
    tally("F9", tried=1, lost=lost)
    assert not lost


def test_header_that_is_damaged_refuses_the_start(killed: KbrokerProcess, topic: str) -> None:
    path = wal_file(killed)
    flip(path, 20)
    assert f"{path}: its header has a wrong checksum" in refused_start(killed)
    flip(path, 20)
    killed.start()
    assert stored(killed, topic) == ALL


def skip_damage(broker: BrokerProcess) -> str:
    command = [sys.executable, "-m", "kbroker.cli", "log", "repair", "--skip-wal-damage",
               "-D", str(broker.data_dir)]  # fmt: skip
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_rot_within_the_wal_refuses_the_start(killed: KbrokerProcess, topic: str) -> None:
    """It says which partitions and how many batches are behind it; the switch goes on there."""
    path = wal_file(killed)
    flip(path, BLOCK + 100)
    said = refused_start(killed)
    assert f"{path}: commit group 1 at byte {BLOCK} is damaged" in said
    assert f"{topic}-0: {RECORDS - 1}" in said
    verify = [sys.executable, "-m", "kbroker.cli", "log", "verify", "-D", str(killed.data_dir)]
    checked = subprocess.run(verify, capture_output=True, text=True, check=False)
    assert checked.returncode == 1 and "commit group 1" in checked.stdout, checked
    flip(path, BLOCK + 100)
    killed.start()
    assert stored(killed, topic) == ALL


def test_switch_goes_on_without_what_is_damaged(killed: KbrokerProcess, topic: str) -> None:
    """The log lacks its first record, so none of the others can follow; the file is kept."""
    path = wal_file(killed)
    flip(path, BLOCK + 100)
    assert f"{RECORDS - 1} batches" in skip_damage(killed)
    killed.start()
    assert stored(killed, topic) == []
    assert f"{topic}-0: {RECORDS - 1}" in killed.log_text()
    names = {one.name for one in killed.data_dir.glob(".kbroker-journal*")}
    assert f"{path.name}.damaged" in names and ".kbroker-journal.skip-damage" not in names


def test_control_without_the_wal_records_are_lost(
    killed: KbrokerProcess, topic: str, tally: Tally
) -> None:
    wal_file(killed).unlink()
    killed.start()
    lost = len(set(ALL) - set(stored(killed, topic)))
    tally("F9", control=lost)
    assert lost == RECORDS
