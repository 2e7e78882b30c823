"""Backups of a directory at rest: what is copied, linked and reused, and what goes wrong."""

from __future__ import annotations

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker.care.backup import create
from kbroker.care.manifest import BackupFile, read_manifest
from kbroker.care.restore import restore, verify
from kbroker.client import Admin, NewTopic, Producer
from kbroker.clock import SystemClock
from kbroker.errors import DiskError, KbrokerError, OperatorError
from kbroker.files import DirectoryInUseError, DirectoryLock
from kbroker.metadata.store import MetadataStore
from kbroker.testing import Broker
from tests.care.traffic import stored

TOPIC = {"segment.ms": "1", "retention.ms": "-1"}

#: Dies while it reads, as by kill -9.
KILLED = """\
import os, signal, sys
from pathlib import Path
from kbroker.care.backup import create
create(Path(sys.argv[1]), Path(sys.argv[2]), tick=lambda _: os.kill(os.getpid(), signal.SIGKILL))
"""


def fill(broker: Broker, label: str, count: int = 6) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("t", f"{label} {number}".encode(), partition=number % 3).result(60)


def below(file: BackupFile) -> str:
    """The path of a file below its log directory."""
    return file.path.removeprefix("data/")


def values(bootstrap: str) -> list[bytes]:
    return sorted(value for _, value in stored(bootstrap, "t").values())


def in_broker(data: Path) -> list[bytes]:
    """What a broker on a directory has in the topic; the directory stays as it is."""
    with Broker({"kbroker.durability": "fsync"}) as broker:
        broker.stop()
        shutil.rmtree(broker.data_dir)
        shutil.copytree(data, broker.data_dir)
        broker.start()
        return values(broker.bootstrap_servers)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a broker that was stopped cleanly: a topic of some closed segments."""
    with Broker({"kbroker.durability": "fsync"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", partitions=3, configs=TOPIC)])
        fill(broker, "one")
        broker.stop()
        return Path(shutil.copytree(broker.data_dir, tmp_path_factory.mktemp("stopped") / "data"))


@pytest.fixture
def rested(stopped: Path, tmp_path: Path) -> Path:
    """The same, for a test of its own."""
    return Path(shutil.copytree(stopped, tmp_path / "data"))


def test_as_it_is_and_back(rested: Path, tmp_path: Path) -> None:
    made = create(rested, tmp_path / "b")
    assert not made.manifest.live
    assert {(one.topic, one.partition, one.end) for one in made.manifest.partitions} == {
        ("t", index, 2) for index in range(3)
    }
    assert list(verify(tmp_path / "b")) == []
    restore(tmp_path / "b", tmp_path / "back")
    for file in made.manifest.files:
        path = below(file)
        back, here = tmp_path / "back" / path, rested / path
        assert back.read_bytes() == here.read_bytes()
        assert not os.path.samefile(back, here)
    assert (tmp_path / "back" / ".kafka_cleanshutdown").exists()
    assert in_broker(tmp_path / "back") == sorted(b"one %d" % n for n in range(6))


def owners(folder: Path) -> set[int]:
    return {path.lstat().st_uid for path in (folder, *folder.rglob("*"))}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_what_root_makes_belongs_to_whom_the_data_belong(rested: Path, tmp_path: Path) -> None:
    for path in (rested, *rested.rglob("*")):
        os.chown(path, 12_345, 12_345)
    create(rested, tmp_path / "b")
    assert owners(tmp_path / "b") == {12_345}
    assert (tmp_path / "b").stat().st_mode & 0o777 == 0o700
    restore(tmp_path / "b", tmp_path / "new")
    assert owners(tmp_path / "new") == {12_345}
    (tmp_path / "there").mkdir()
    os.chown(tmp_path / "there", 23_456, -1)
    restore(tmp_path / "b", tmp_path / "there")
    assert owners(tmp_path / "there") == {23_456}


def test_only_closed_segments_are_linked(rested: Path, tmp_path: Path) -> None:
    made = create(rested, tmp_path / "b")
    linked = {
        below(file) for file in made.manifest.files
        if os.path.samefile(tmp_path / "b" / file.path, rested / below(file))
    }  # fmt: skip
    closed = {
        str(path.relative_to(rested))
        for index in range(3)
        for path in sorted((rested / f"t-{index}").glob("*.log"))[:-1]
    }
    assert closed
    assert linked in (closed, set())  # none where the disk clones files
    (rested / ".kafka_cleanshutdown").unlink()  # what a crash left is cut in place
    create(rested, tmp_path / "c")
    for path in closed:
        assert not os.path.samefile(tmp_path / "c/data" / path, rested / path)


def test_a_later_backup_takes_what_has_not_changed(rested: Path, tmp_path: Path) -> None:
    create(rested, tmp_path / "one")
    os.utime(rested / "t-0" / "partition.metadata")
    again = create(rested, tmp_path / "two", since=tmp_path / "one")
    read = {below(file) for file in again.manifest.files
            if not os.path.samefile(tmp_path / "one" / file.path,
                                    tmp_path / "two" / file.path)}  # fmt: skip
    assert read == {"t-0/partition.metadata"}
    with pytest.raises(OperatorError, match="no backup"):
        create(rested, tmp_path / "three", since=rested)
    meta = rested / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(OperatorError, match="of node 1 of cluster"):
        create(rested, tmp_path / "three", since=tmp_path / "one")
    assert not list(tmp_path.glob("three*"))


def test_after_a_crash_the_journal_goes_along(tmp_path: Path) -> None:
    """What the page cache lost of a segment is in the journal, here and in the restored one."""
    with Broker({"kbroker.durability": "fsync"}) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic("t", partitions=3)])
        fill(broker, "one", 9)
        broker.kill()
        data = Path(broker.data_dir)
        for log in data.glob("t-*/*.log"):
            os.truncate(log, log.stat().st_size // 2)
        create(data, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "back")
    assert in_broker(tmp_path / "back") == sorted(b"one %d" % n for n in range(9))


def test_a_kill_in_the_middle_leaves_nothing_that_looks_complete(
    rested: Path, tmp_path: Path
) -> None:
    target = tmp_path / "b"
    command = [sys.executable, "-c", KILLED, str(rested), str(target)]
    assert subprocess.run(command, check=False, timeout=120).returncode == -signal.SIGKILL
    left = tmp_path / "b.partial"
    assert left.is_dir() and not target.exists()
    for act in (lambda: list(verify(left)), lambda: restore(left, tmp_path / "back")):
        with pytest.raises(OperatorError, match="no backup, or not a whole one"):
            act()
    assert not (tmp_path / "back").exists()
    with DirectoryLock(left), pytest.raises(DirectoryInUseError):
        create(rested, target)
    create(rested, target)
    assert list(verify(target)) == [] and not left.exists()


def test_a_folder_that_is_not_ours_stays(rested: Path, tmp_path: Path) -> None:
    (tmp_path / "b.partial").mkdir()
    (tmp_path / "taken").write_text("")
    for name, told in (("b", "no backup that was broken off"), ("taken", "is there already"),
                       ("data/b", "in the data directory itself")):  # fmt: skip
        with pytest.raises(OperatorError, match=told):
            create(rested, tmp_path / name)
    with pytest.raises(OperatorError, match="is no data directory"):
        create(tmp_path / "none", tmp_path / "c")
    assert (tmp_path / "b.partial").is_dir() and (tmp_path / "taken").exists()


def test_a_disk_that_takes_no_more(rested: Path, tmp_path: Path) -> None:
    """Told with the file, and nothing is left: neither of a backup nor of a restore."""
    (rested / "t-0" / f"{0:020}.txnindex").write_bytes(bytes(1 << 16))
    create(rested, tmp_path / "whole")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, before[1]))
    try:
        for act in (lambda: create(rested, tmp_path / "b"),
                    lambda: restore(tmp_path / "whole", tmp_path / "back")):  # fmt: skip
            with pytest.raises(DiskError, match="txnindex: File too large"):
                act()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert not list(tmp_path.glob("b*")) and not (tmp_path / "back").exists()


def damage(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()  # it may be a link
    path.write_bytes(data)


def test_a_damaged_backup_is_told_and_not_restored(rested: Path, tmp_path: Path) -> None:
    backup = tmp_path / "b"
    create(rested, backup)
    log = sorted((backup / "data").glob("t-1/*.log"))[-1]
    (backup / "data/t-2/leader-epoch-checkpoint").unlink()
    (backup / "data/stranger").write_text("x")
    with (backup / "data/meta.properties").open("a") as meta:
        meta.write("#\n")
    log.write_bytes(log.read_bytes()[:-1] + b"?")
    faults = "\n".join(verify(backup))
    for told in (f"{log}: its checksum", "leader-epoch-checkpoint: is missing",
                 "stranger: is not in the manifest", "meta.properties: has "):  # fmt: skip
        assert told in faults
    assert faults.count("\n") == 3
    target = tmp_path / "back"
    with pytest.raises(DiskError, match="the backup is damaged, nothing was restored"):
        restore(backup, target)
    assert not target.exists()
    target.mkdir()
    with pytest.raises(DiskError):
        restore(backup, target)
    assert list(target.iterdir()) == []


def test_a_manifest_that_was_tampered_with(rested: Path, tmp_path: Path) -> None:
    create(rested, tmp_path / "b")
    path = tmp_path / "b" / "manifest.json"
    whole = path.read_text()
    told = json.loads(whole)
    for text in (whole.replace("t-1/", "../../", 1), whole[:-9], "[]", '{"format":1}',
                 whole.replace('"format":2', '"format":9')):  # fmt: skip
        path.write_text(text)
        with pytest.raises(OperatorError):
            read_manifest(tmp_path / "b")
    told["backup"]["files"][0][0] = "../../out"
    path.write_text(json.dumps(told))
    with pytest.raises(OperatorError, match="checksum"):
        read_manifest(tmp_path / "b")


def test_nothing_is_restored_over_something(rested: Path, tmp_path: Path) -> None:
    create(rested, tmp_path / "b")
    (tmp_path / "file").write_text("")
    for target in (rested, tmp_path / "file"):
        with pytest.raises(OperatorError, match="is not empty"):
            restore(tmp_path / "b", target)
    mounted = tmp_path / "mounted"
    (mounted / "lost+found").mkdir(parents=True)
    restore(tmp_path / "b", mounted)
    with pytest.raises(KbrokerError):
        restore(tmp_path / "b", mounted)


def test_a_restore_that_was_broken_off_is_no_data_directory(rested: Path, tmp_path: Path) -> None:
    create(rested, tmp_path / "b")
    restore(tmp_path / "b", tmp_path / "back")
    (tmp_path / "back/meta.properties").unlink()  # it comes last
    with pytest.raises(OperatorError, match="broken off"):
        restore(tmp_path / "b", tmp_path / "back")
    with pytest.raises(OperatorError, match=r"has no meta\.properties, but holds"):
        MetadataStore(tmp_path / "back", SystemClock()).open()
