"""A log on a disk that is full or fails: nothing torn is shown, nothing lost, nothing retried."""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import subprocess
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext import records
from tests.support.logs import batch, open_log, read_all
from tests.support.native import shared_library
from tests.support.nth_call import KINDS, run_with


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "topic-0"


@pytest.fixture
def limit_file_size():
    """RLIMIT_FSIZE: a write beyond it fails with EFBIG, after what still fits."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)

    def limit(size):
        resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))

    yield limit
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


class TestFull:
    def test_a_short_write_leaves_nothing(self, folder, limit_file_size):
        log = open_log(folder)
        for i in range(5):
            log.append(batch(1, 1000, i), leader_epoch=0)
        written, size = read_all(log), log.size_bytes
        for extra in (0, 1, 60, 61, 500, size // 5 - 1):
            limit_file_size(size + extra)
            with pytest.raises(DiskError):
                log.append(batch(1, 1000), leader_epoch=0)
            assert log.offline is None
            assert (folder / f"{0:020}.log").stat().st_size == size
            assert read_all(log) == written
        limit_file_size(size * 2)
        assert log.append(batch(1, 1000), leader_epoch=0) == (5, 5)
        limit_file_size(resource.RLIM_INFINITY)
        log.close()
        assert open_log(folder).log_end_offset == 6

    def test_no_room_for_the_leader_epochs_is_no_failed_sync(self, folder, limit_file_size):
        """The data is on disk; the recovery point waits, so that a crash finds the epochs again."""
        log = open_log(folder)
        log.append(batch(3), leader_epoch=4)
        checkpoint = folder / "leader-epoch-checkpoint"
        for size in (0, 5):
            limit_file_size(size)
            assert log.flush() == 0
            limit_file_size(resource.RLIM_INFINITY)
            assert log.offline is None and not checkpoint.exists()
        crashed = folder.with_name("topic-1")
        shutil.copytree(folder, crashed)
        assert open_log(crashed, clean=False).leader_epochs() == [(4, 0)]
        assert log.append(batch(), leader_epoch=4) == (3, 3)
        assert log.flush() == 4
        assert checkpoint.read_text() == "0\n1\n4 0\n"

    def test_no_room_for_an_index_is_found_before_the_write(self, folder, limit_file_size):
        log = open_log(folder, index_interval_bytes=100)
        limit_file_size(4095)
        log.append(batch(1, 200), leader_epoch=0)
        size = log.size_bytes
        with pytest.raises(DiskError):
            log.append(batch(1, 200), leader_epoch=0)
        assert log.size_bytes == size
        limit_file_size(resource.RLIM_INFINITY)
        log.append(batch(1, 200), leader_epoch=0)
        assert log.log_end_offset == 2

    def test_no_descriptor_is_no_disk_error(self, folder):
        log = open_log(folder)
        log.append(batch(), leader_epoch=0)
        log.flush()
        log.let_go(1 << 50, 0)
        log.let_go(1 << 51, 0)
        before = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")), before[1]))
        try:
            with pytest.raises(DiskError):
                while True:
                    log.append(batch(), leader_epoch=0)
                    log.roll()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, before)
        assert log.offline is None
        end = log.log_end_offset
        assert log.append(batch(), leader_epoch=0) == (end, end)


def mount_small(tmp_path, mebibytes=8):
    """A file system of its own, or a skip where loop devices do not work."""
    from tests.support.needs import loop_devices_work, missing

    if not loop_devices_work():
        missing("a loop device: install e2fsprogs and mount, and run as root")
    image, point = tmp_path / "image", tmp_path / "disk"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(mebibytes << 20)
    subprocess.run(["mkfs.ext4", "-q", "-m0", str(image)], check=True)
    subprocess.run(["mount", "-o", "loop", str(image), str(point)], check=True)
    return point


@pytest.fixture
def small_disk(tmp_path):
    point = mount_small(tmp_path)
    yield point
    gc.collect()
    subprocess.run(["umount", "-l", str(point)], check=True)


class TestSmallDisk:
    def test_fills_refuses_and_goes_on(self, small_disk):
        folder = small_disk / "topic-0"
        log = open_log(folder, segment_bytes=1 << 20)
        refused = 0
        for _ in range(3):
            with pytest.raises(DiskError):
                while True:
                    log.append(batch(1, 50_000), leader_epoch=0)
            refused += 1
            assert log.offline is None
            written = read_all(log)
            assert len(records.batches(written)) == log.log_end_offset - log.log_start_offset
            log.set_log_start_offset(log.log_end_offset - 5)
            log.delete_old_segments(0)
            log.unlink_deleted(at_once=True)
        log.append(batch(), leader_epoch=0)
        end = log.log_end_offset
        log.close()
        assert open_log(folder, segment_bytes=1 << 20).log_end_offset == end
        assert refused == 3


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    return shared_library("nth_call", tmp_path_factory.mktemp("shim"))


class TestFailing:
    def test_a_failed_write_takes_the_log_offline(self, folder, shim):
        run_with(shim, folder, """
            log = open_log(folder)
            for i in range(3):
                log.append(batch(1, 1000, i), leader_epoch=0)
            size = log.size_bytes
            fail(PWRITE, 0, EIO)
            for _ in range(2):
                try:
                    log.append(batch(1, 1000), leader_epoch=0)
                    sys.exit("appended")
                except DiskError as error:
                    assert "Input/output error" in str(error), error
            assert log.offline == "Input/output error"
            assert (folder / f"{0:020}.log").stat().st_size == size
        """)  # fmt: skip
        log = open_log(folder, clean=False)
        assert log.log_end_offset == 3
        assert len(records.batches(read_all(log))) == 3

    @pytest.mark.parametrize("nth", range(4))
    def test_a_failed_sync_is_final(self, folder, shim, nth):
        run_with(shim, folder, f"""
            log = open_log(folder, segment_bytes=3000, index_interval_bytes=500)
            for i in range(6):
                log.append(batch(1, 1000, i), leader_epoch=0)
            before = log.recovery_point
            fail(FDATASYNC, {nth}, EIO)
            for _ in range(2):
                try:
                    log.flush()
                    sys.exit("flushed")
                except DiskError as error:
                    pass
            assert log.offline == "Input/output error"
            assert log.recovery_point == before
            try:
                log.append(batch(), leader_epoch=0)
                sys.exit("appended")
            except DiskError:
                pass
        """)  # fmt: skip

    @pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])
    @pytest.mark.parametrize("kind", KINDS)
    def test_the_nth_call_fails_for_every_n(self, folder, shim, kind, code, tally):
        """Whatever fails, what was acknowledged comes back, and nothing that was not."""
        told = run_with(shim, folder, f"""
            import itertools
            from kbroker.ext import records
            SETTINGS = dict(segment_bytes=900, index_interval_bytes=150)

            def live(folder, acknowledged):
                try:
                    log = open_log(folder, **SETTINGS)
                except DiskError:
                    return
                for i in range(18):
                    data = batch(1, 120, 1000 + i, producer_id=1, producer_epoch=0,
                                 base_sequence=len(acknowledged))
                    try:
                        base, _ = log.append(data, leader_epoch=i // 10)
                    except DiskError:
                        continue
                    assert base == len(acknowledged)
                    acknowledged.append(i)
                    if i % 6 == 5:
                        try:
                            log.flush()
                        except DiskError:
                            pass
                seen = [r.timestamp - 1000 for r in records.read(read_all(log))] \
                    if log.offline is None else acknowledged
                assert seen == acknowledged, (seen, acknowledged)
                try:
                    log.close()
                except DiskError:
                    pass

            for n in itertools.count():
                here, acknowledged = folder / f"n{{n}}-0", []
                here.parent.mkdir(exist_ok=True)
                fail({KINDS[kind]}, n, {code})
                live(here, acknowledged)
                reached = failed()
                fail(0, -1, 0)
                for clean in (False, False):
                    log = open_log(here, clean=clean, **SETTINGS)
                    found = [r.timestamp - 1000 for r in records.read(read_all(log))]
                    assert found == acknowledged, (n, found, acknowledged)
                    last = [one[2] for one in log.producers()]
                    assert last == [len(acknowledged) - 1][:len(acknowledged)]
                    log.close(clean=False)
                if not reached:
                    break
            assert n > 0
            print(n)
        """)  # fmt: skip
        tally("F5", tried=int(told))

    def test_an_error_of_an_open_folder_is_told(self, tmp_path):
        (tmp_path / "topic-0").write_text("no folder")
        with pytest.raises(DiskError) as failed:
            open_log(tmp_path / "topic-0")
        assert failed.value.errno == errno.ENOTDIR


def test_deleted_topics_touch_no_file_by_name(folder):
    """Another log may live under the name by the time the last reference goes."""
    log = open_log(folder, index_interval_bytes=10)
    for i in range(20):
        log.append(batch(1, 100, i), leader_epoch=0)
    log.mark_deleted()
    os.rename(folder, folder.with_name("old"))
    other = open_log(folder, index_interval_bytes=10)
    for i in range(20):
        other.append(batch(1, 100, i), leader_epoch=0)
    with pytest.raises(DiskError):
        log.append(batch(), leader_epoch=0)
    del log
    shutil.rmtree(folder.with_name("old"))
    other.close()
    assert len(records.batches(read_all(open_log(folder)))) == 20
