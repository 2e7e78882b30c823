"""The disk's limits: which segments make room, when produce is refused and taken again."""

from __future__ import annotations

import logging
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace

import pytest

from kbroker.clock import FakeClock
from kbroker.errors import DiskError
from kbroker.ext.log import Log
from kbroker.ext.log_space import oldest_closed
from kbroker.storage import full
from kbroker.storage.dead_folders import folder_bytes
from kbroker.storage.disk import DiskGuard, DiskLimits, _Request
from kbroker.storage.manager import LogManager, Opening, PartitionSpec
from tests.support.logs import CONFIG, batch
from tests.support.partitions import created, deleted
from tests.support.waits import wait_for

MIB = 1 << 20
UNLIMITED = None


class Port:
    """The data plane: bytes that the logs take, what it was told, what a request asked for."""

    def __init__(self, logs: LogManager) -> None:
        self.logs = logs
        self.room: int | None = -1
        self.refusing = False
        self.wanted = 0

    def disk_bytes(self) -> int:
        return sum(log.size_bytes for _, log in self.logs.items())

    def set_disk_room(self, room: int | None, refusing: bool) -> None:
        self.room, self.refusing = room, refusing

    def disk_room(self) -> int:
        assert self.room is not None
        return self.room

    def take_disk_room(self, size: int) -> bool:
        enough = self.room is UNLIMITED or self.room >= size
        if enough and self.room is not UNLIMITED:
            self.room -= size
        return enough

    def take_disk_wanted(self) -> int:
        wanted, self.wanted = self.wanted, 0
        return wanted


class Disk:
    """Real logs under a guard with a clock of the test's own."""

    def __init__(self, folder: Path, **limits: int) -> None:
        self.clock = FakeClock()
        self.limits = DiskLimits(**limits)
        self.logs = LogManager(folder, self._open)
        self.logs.start([])
        self.port = Port(self.logs)
        self.guard = DiskGuard(self.limits, self.logs, self.port, {"__internal"}, self.clock)

    def _open(self, opening: Opening) -> Log:
        spec = opening.spec
        return Log(opening.directory, spec.topic, spec.topic_id, spec.partition, spec.config,
                   clean=True, durable=False)  # fmt: skip

    def log(self, topic: str, **settings: int) -> Log:
        """A new topic's log, with segments of a batch each."""
        config = CONFIG | {"segment_bytes": 100_100, "file_delete_delay_ms": 10**9} | settings
        (made,) = created(self.logs, [PartitionSpec(topic, topic.encode().ljust(16), 0, config)])
        assert isinstance(made, Log)
        return made

    def check(self) -> None:
        self.clock.advance(10_000)
        self.guard.check()


def fill(log: Log, batches: int, first_ms: int) -> None:
    """Batches of about 100 kB, a millisecond apart."""
    for i in range(batches):
        log.append(batch(1, 100_000, first_ms + i), leader_epoch=0)


def starts(*logs: Log) -> list[int]:
    return [log.log_start_offset for log in logs]


def test_the_oldest_goes_first_whichever_topic_it_belongs_to(tmp_path: Path) -> None:
    disk = Disk(tmp_path, bytes_max=4 * MIB)
    young, old = disk.log("young"), disk.log("old")
    fill(young, 10, 5_000)
    fill(old, 10, 1_000)
    disk.check()
    assert starts(young, old) == [0, 0] and disk.port.room > 2 * MIB - 100_000
    fill(young, 15, 5_010)
    disk.check()
    assert starts(young) == [0] and 0 < old.log_start_offset < 9
    fill(young, 20, 6_000)
    disk.check()
    assert starts(old) == [9], "the active segment stays"
    assert 0 < young.log_start_offset < 35
    assert disk.port.room >= MIB and not disk.guard.refusing
    assert not list(tmp_path.rglob("*.deleted"))


@pytest.mark.parametrize(
    ("topic", "settings"),
    [
        ("compacted", {"cleanup_delete": 0, "cleanup_compact": 1}),
        ("both", {"cleanup_compact": 1}),
        ("neither", {"cleanup_delete": 0}),
        ("__internal", {}),
    ],
)
def test_what_is_never_deleted_makes_produce_wait(
    tmp_path: Path, topic: str, settings: dict[str, int], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    disk = Disk(tmp_path, bytes_max=2 * MIB)
    kept, other = disk.log(topic, **settings), disk.log("other")
    fill(kept, 21, 1_000)
    fill(other, 1, 1_000)
    for _ in range(3):
        disk.check()
    assert starts(kept, other) == [0, 0]
    assert disk.guard.refusing and disk.port.refusing and disk.port.room == 0
    deleted(disk.logs, topic, [0], disk.clock.monotonic_ms() + 10**9)
    for _ in range(3):
        disk.check()
    assert not disk.port.refusing and disk.port.room > MIB
    lines = [line for line in caplog.messages if "KAFKA_STORAGE" in line or "room" in line]
    assert len(lines) == 2
    assert "kbroker.disk.bytes.max=2097152 is reached" in lines[0]


def test_files_that_wait_for_their_end_go_at_once(tmp_path: Path) -> None:
    disk = Disk(tmp_path, bytes_max=3 * MIB)
    log = disk.log("topic")
    fill(log, 28, 1_000)
    log.set_log_start_offset(20)
    log.delete_old_segments(0)
    assert len(list(tmp_path.rglob("*.log.deleted"))) == 20
    gone = disk.log("gone")
    fill(gone, 1, 1_000)
    fill(log, 20, 2_000)
    deleted(disk.logs, "gone", [0], 10**12)
    disk.check()
    assert not list(tmp_path.rglob("*.deleted")) and not disk.logs.dead.paths()
    assert not list(tmp_path.glob("gone-0*"))


def test_nothing_goes_once_the_disk_has_failed(tmp_path: Path) -> None:
    """What replaced a file may not be durable: the next start needs what is left of the old."""
    disk = Disk(tmp_path, bytes_max=3 * MIB)
    log, gone = disk.log("topic"), disk.log("gone")
    fill(log, 28, 1_000)
    fill(gone, 1, 1_000)
    log.set_log_start_offset(20)
    log.delete_old_segments(0)
    deleted(disk.logs, "gone", [0], 0)
    before = sorted(tmp_path.rglob("*"))
    disk.logs.fail(disk.logs.main, "the disk has failed")
    disk.check()
    disk.logs.dead.remove(10**12)
    assert sorted(tmp_path.rglob("*")) == before
    assert len(list(tmp_path.rglob("*.log.deleted"))) == 20 and len(disk.logs.dead.paths()) == 1


def test_a_request_too_large_for_what_can_come_free_is_not_kept_waiting(tmp_path: Path) -> None:
    disk = Disk(tmp_path, bytes_max=4 * MIB)
    fill(disk.log("topic", cleanup_compact=1), 30, 1_000)
    disk.check()
    assert not disk.port.refusing and 0 < (disk.port.room or 0) < 2 * MIB
    disk.port.wanted = 2 * MIB
    disk.check()
    assert disk.port.refusing
    disk.check()
    assert disk.port.refusing, "until something has come free"


def granted(disk: Disk, size: int) -> bool:
    """What the cleaner is told, from a thread of its own, while looks go on."""
    with ThreadPoolExecutor(1) as pool:
        told = pool.submit(disk.guard.await_room, size)

        def answered() -> bool:
            disk.guard.check()
            return told.done()

        wait_for("an answer", answered, 60)
        return told.result()


def test_the_oldest_make_room_for_what_is_cleaned(tmp_path: Path) -> None:
    """It is not handed to clients; who asks for less than there is waits for no look."""
    disk = Disk(tmp_path, bytes_max=8 * MIB)
    log = disk.log("topic")
    fill(log, 60, 1_000)
    disk.check()
    assert disk.guard.await_room(MIB)
    disk.check()
    before = disk.port.room or 0
    assert 0 < before < 3 * MIB and log.log_start_offset == 0
    asked = before + MIB // 2
    assert granted(disk, asked)
    assert log.log_start_offset > 0
    assert disk.port.room == 8 * MIB - disk.guard.used_bytes() - asked
    disk.check()
    assert disk.port.room > MIB, "the next look counts what is there"


def test_a_cleaning_goes_on_without_room(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path, bytes_max=3 * MIB)
    kept, other = disk.log("kept", cleanup_compact=1), disk.log("other")
    fill(kept, 20, 1_000)
    fill(other, 3, 1_000)
    disk.check()
    assert not granted(disk, 8 * MIB) and not granted(disk, 8 * MIB)
    assert "compaction writes up to 8388608 bytes" in caplog.text
    assert len(caplog.messages) == 1 and not disk.guard.refusing
    disk.limits.bytes_max = -1
    assert granted(disk, 8 * MIB)


def ask(disk: Disk, size: int) -> None:
    """As the cleaner does, in the middle of its wait for the next look."""
    disk.guard._requests.append(_Request(size))


def test_clients_have_the_room_that_is_too_little_for_a_cleaning(tmp_path: Path) -> None:
    """The cleaner asks again and again, and goes on ungranted: they would wait for its end."""
    disk = Disk(tmp_path, bytes_max=8 * MIB)
    fill(disk.log("topic", cleanup_compact=1), 65, 1_000)
    disk.check()
    for _ in range(3):
        disk.port.wanted = 100_000
        ask(disk, 4 * MIB)
        disk.check()
        assert not disk.port.refusing
        assert disk.port.room == 8 * MIB - disk.guard.used_bytes() > MIB


def test_nothing_is_deleted_for_who_waits_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kbroker.storage.disk._AWAIT_LOOK_S", 0)
    disk = Disk(tmp_path, bytes_max=8 * MIB)
    log = disk.log("topic")
    fill(log, 60, 1_000)
    disk.check()
    assert not disk.guard.await_room(3 * MIB)
    disk.check()
    assert starts(log) == [0]
    ask(disk, 3 * MIB)
    disk.check()
    assert log.log_start_offset > 0, "who still waits has them deleted"


def test_who_asks_in_vain_has_the_logs_searched_no_oftener(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, bytes_max=8 * MIB)
    fill(disk.log("topic", cleanup_compact=1), 65, 1_000)
    disk.check()
    searches = []
    monkeypatch.setattr(disk.guard, "_candidates", lambda: iter(searches.append(1) or ()))
    for _ in range(8):
        disk.clock.advance(250)
        ask(disk, 4 * MIB)
        disk.guard.check()
    assert len(searches) == 1


def test_room_is_made_ahead_of_what_comes(tmp_path: Path) -> None:
    """As much as came since the last look, twice, within a quarter of the limit."""
    disk = Disk(tmp_path, bytes_max=16 * MIB)
    log = disk.log("topic")
    fill(log, 100, 1_000)
    disk.check()
    for turn in range(5):
        fill(log, 15, 2_000 + turn * 100)
        disk.check()
    assert 2 * 1_500_000 <= disk.port.room <= 4 * MIB


def test_nothing_is_refused_without_another_search(tmp_path: Path) -> None:
    """A search that found nothing is not repeated at once, unless produce would be refused."""
    disk = Disk(tmp_path, bytes_max=2 * MIB)
    kept, log = disk.log("kept", cleanup_compact=1), disk.log("topic")
    fill(kept, 12, 1_000)
    disk.check()
    fill(log, 9, 1_000)
    disk.port.room = 0  # spent
    disk.guard.check()
    assert not disk.guard.refusing and log.log_start_offset > 0


def test_free_space_is_kept_too(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk(tmp_path, free_min=1 << 60)
    fill(disk.log("topic"), 3, 1_000)
    disk.check()
    assert disk.port.refusing and "kbroker.disk.free.bytes.min=" in caplog.text
    disk.limits.free_min = 1
    disk.check()
    assert not disk.port.refusing and disk.port.room > 0


def test_what_the_limits_leave_is_known_beforehand(tmp_path: Path) -> None:
    """Of the file system, whatever is on it now, as df counts it."""
    disk = os.statvfs(tmp_path)
    size = (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize
    assert DiskLimits().leave(tmp_path) == -1
    assert DiskLimits(bytes_max=MIB).leave(tmp_path) == MIB
    assert abs(DiskLimits(free_min=size // 2).leave(tmp_path) - size // 2) < 64 * MIB
    assert DiskLimits(bytes_max=MIB, free_min=1).leave(tmp_path) == MIB
    assert DiskLimits(bytes_max=MIB, free_min=1 << 60).leave(tmp_path) == 0
    assert DiskLimits(bytes_max=MIB, free_min=1).leave(tmp_path / "gone") == MIB


def test_a_look_that_fails_lets_nobody_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = Disk(tmp_path, bytes_max=0)
    disk.check()
    assert disk.port.refusing
    with monkeypatch.context() as patch:
        patch.setattr(disk.port, "disk_bytes", lambda: (_ for _ in ()).throw(OSError(5, "EIO")))
        with pytest.raises(DiskError, match="EIO"):
            disk.check()
        assert disk.port.room is UNLIMITED and not disk.port.refusing
        disk.guard.check()
    disk.check()
    assert disk.port.refusing


def test_without_limits_nobody_counts(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    disk.check()
    assert disk.port.room == -1, "the data plane was not told anything"
    disk.limits.bytes_max = 0
    disk.check()
    assert disk.port.refusing
    disk.limits.bytes_max = -1
    disk.check()
    assert disk.port.room is UNLIMITED and not disk.port.refusing


def test_what_may_go_is_closed_and_durable(tmp_path: Path) -> None:
    log = Disk(tmp_path).log("topic")
    assert oldest_closed(log) is None
    fill(log, 1, 1_000)
    assert oldest_closed(log) is None
    fill(log, 1, 2_000)
    assert oldest_closed(log) == (1_000, 1)
    log.close()
    assert oldest_closed(log) is None


def test_a_file_that_goes_while_they_are_counted_hides_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abc":
        (tmp_path / name).write_bytes(b"1234")
    entries = list(os.scandir(tmp_path))
    (tmp_path / entries[0].name).unlink()
    monkeypatch.setattr(os, "scandir", lambda folder: entries)
    assert folder_bytes(tmp_path) == 8


class FileSystem:
    """How much is free on it, and how many appends have found too little."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.free = 10 * MIB
        self.failed = 0
        monkeypatch.setattr(full, "appends_without_room", lambda place: self.failed)
        monkeypatch.setattr(os, "statvfs", lambda _: SimpleNamespace(
            f_bfree=self.free, f_bavail=self.free, f_blocks=self.free, f_frsize=1
        ))  # fmt: skip


def test_a_full_file_system_is_told_without_limits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """From the append that failed until something came free; nobody is refused ahead."""
    there = FileSystem(monkeypatch)
    disk = Disk(tmp_path)
    there.free = 1000
    disk.check()
    assert disk.guard.refused_for is None, "nobody has asked for more"
    for _ in range(3):
        there.failed += 1
        disk.check()
        disk.check()
        assert disk.guard.refused_for == full.FULL and disk.guard.refusing
    assert disk.port.room == -1 and not disk.port.refusing
    there.free += 2 * MIB
    disk.check()
    assert disk.guard.refused_for is None
    assert [record.levelname for record in caplog.records] == ["ERROR", "WARNING"]


def test_under_a_quota_of_the_file_system_what_is_taken_tells(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = FileSystem(monkeypatch)
    disk = Disk(tmp_path)
    log = disk.log("topic")
    there.failed += 1
    disk.check()
    assert disk.guard.refusing
    fill(log, 5, 1_000)
    disk.check()
    assert disk.guard.refusing
    fill(log, 6, 2_000)
    disk.check()
    assert not disk.guard.refusing


def test_a_limit_is_told_before_the_file_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = FileSystem(monkeypatch)
    disk = Disk(tmp_path, bytes_max=0)
    there.failed += 1
    disk.check()
    assert disk.guard.refused_for == "kbroker.disk.bytes.max" and disk.port.refusing
    disk.limits.bytes_max = -1
    disk.check()
    assert disk.guard.refused_for == full.FULL and not disk.port.refusing
