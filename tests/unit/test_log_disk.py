"""A log on a disk that is full or fails: nothing torn is shown, nothing lost, nothing retried."""

from __future__ import annotations

import errno
import gc
import os
import resource
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext import records
from tests.support.logs import batch, open_log, read_all
from tests.support.tree import ROOT


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


# A library in front of the C library, which fails the n-th call of a kind from now on, and holds up
# fdatasync while it is told to.
SHIM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/types.h>
#include <unistd.h>
static int countdown = -1, kind = 0, code = EIO, hits = 0;
static volatile int holding = 0, waiting = 0;
void hold(int on) { holding = on; }
int held(void) { return waiting; }
void fail_next(int which, int n, int with) { kind = which; countdown = n; code = with; hits = 0; }
int failed(void) { return hits; }
static int fails(int which) {
    if (kind != which || countdown < 0 || countdown-- != 0) return 0;
    hits++;
    return 1;
}
#define REAL(name, result, ...) \
    static result (*real)(__VA_ARGS__); \
    if (!real) real = (result (*)(__VA_ARGS__))dlsym(RTLD_NEXT, #name)
ssize_t pwrite64(int fd, const void *p, size_t n, off_t at) {
    REAL(pwrite64, ssize_t, int, const void *, size_t, off_t);
    if (fails(1)) { real(fd, p, n / 2, at); errno = code; return -1; }
    return real(fd, p, n, at);
}
ssize_t pwrite(int fd, const void *p, size_t n, off_t at) { return pwrite64(fd, p, n, at); }
int fdatasync(int fd) {
    REAL(fdatasync, int, int);
    while (holding) { waiting = 1; usleep(1000); }
    waiting = 0;
    if (fails(2)) { errno = code; return -1; }
    return real(fd);
}
int fsync(int fd) {
    REAL(fsync, int, int);
    if (fails(3)) { errno = code; return -1; }
    return real(fd);
}
int ftruncate64(int fd, off_t n) {
    REAL(ftruncate64, int, int, off_t);
    if (fails(4)) { errno = code; return -1; }
    return real(fd, n);
}
int ftruncate(int fd, off_t n) { return ftruncate64(fd, n); }
int fallocate64(int fd, int mode, off_t at, off_t n) {
    REAL(fallocate64, int, int, int, off_t, off_t);
    if (fails(5)) { errno = code; return -1; }
    return real(fd, mode, at, n);
}
int fallocate(int fd, int mode, off_t at, off_t n) { return fallocate64(fd, mode, at, n); }
int rename(const char *old, const char *new) {
    REAL(rename, int, const char *, const char *);
    if (fails(6)) { errno = code; return -1; }
    return real(old, new);
}
ssize_t write(int fd, const void *p, size_t n) {
    REAL(write, ssize_t, int, const void *, size_t);
    if (fails(7)) { errno = code; return -1; }
    return real(fd, p, n);
}
"""

KINDS = {
    "pwrite": 1,
    "fdatasync": 2,
    "fsync": 3,
    "ftruncate": 4,
    "fallocate": 5,
    "rename": 6,
    "write": 7,
}


@pytest.fixture(scope="module")
def shim(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shim")
    (folder / "shim.c").write_text(SHIM)
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", "shim.so", "shim.c", "-ldl"],
        cwd=folder,
        check=True,
    )
    return folder / "shim.so"


def run_with(shim, folder, script):
    """A script of its own process with the shim in front; `fail(kind, n)` arms it."""
    prelude = f"""
        import ctypes, sys
        from pathlib import Path
        from kbroker.errors import DiskError
        from tests.support.logs import batch, open_log, read_all
        library = ctypes.CDLL({str(shim)!r})
        fail, failed = library.fail_next, library.failed
        hold, held = library.hold, library.held
        PWRITE, FDATASYNC, EIO = 1, 2, 5
        folder = Path({str(folder)!r})
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, LD_PRELOAD=str(shim)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout


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

    @pytest.mark.parametrize(("code", "offline"), [(0, None), (errno.EIO, "Input/output error")])
    def test_a_log_deleted_under_its_sync_is_no_disk_error(self, folder, shim, code, offline):
        """Its folder is renamed while the segment is synced, so that the rest is not found by name;
        a sync that fails is one of the disk all the same."""
        run_with(shim, folder, f"""
            from threading import Thread
            from kbroker.ext.log_state import logs_taken_offline
            from tests.support.waits import wait_for

            def flush():
                try:
                    log.flush()
                except DiskError as error:
                    told.append(error)

            log, told = open_log(folder), []
            log.append(batch(), leader_epoch=0)
            hold(1)
            fail(FDATASYNC, 0 if {code} else -1, {code})
            syncing = Thread(target=flush, daemon=True)
            syncing.start()
            wait_for("the segment is being synced", held, 30)
            log.mark_deleted()
            folder.rename(folder.with_name("old"))
            hold(0)
            syncing.join()
            assert len(told) == 1
            assert log.offline == {offline!r}, log.offline
            assert logs_taken_offline() == {int(code != 0)}
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
