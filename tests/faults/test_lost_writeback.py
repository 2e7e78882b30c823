"""Errors of writeback that come while no descriptor of the file is open.

The disk is an image in a tmpfs that is too small for it: what is written to a file fails when the
kernel writes it back, and nothing before or after. Another program's sync is told of it first.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kbroker.errors import DiskError
from kbroker.ext.log import Log
from kbroker.ext.log_flush import sync_file_system
from kbroker.ext.open_files import limit_open_files, open_files
from kbroker.files import DirectoryLock
from kbroker.storage.log_directory import LogDirectory
from tests.support.logs import batch, open_log
from tests.support.needs import need_loop

MIB = 1 << 20
WRITTEN_MIB = 32
IMAGE_MIB = 100


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A file system whose disk takes its metadata, and 8 MiB more until `fail_writeback`."""
    need_loop()
    memory, disk = tmp_path / "memory", tmp_path / "disk"
    memory.mkdir()
    disk.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={IMAGE_MIB}m", "none", memory], check=True)
    try:
        with (memory / "image").open("wb") as image:
            image.truncate(IMAGE_MIB * MIB)
        # One group of blocks, and the smallest journal.
        options = ["-q", "-F", "-b", "4096", "-J", "size=4"]
        subprocess.run(["mkfs.ext4", *options, memory / "image"], check=True)
        subprocess.run(["mount", "-o", "loop", memory / "image", disk], check=True)
        try:
            write_journal(disk)
            resize(memory, (memory / "image").stat().st_blocks * 512 + 8 * MIB)
            yield disk
        finally:
            subprocess.run(["umount", "--lazy", disk], check=True)
    finally:
        subprocess.run(["umount", "--lazy", memory], check=True)


def write_journal(disk: Path) -> None:
    """Let the journal of the file system, a ring, go round, so that all of it has its memory."""
    for number in range(600):
        with (disk / "turn").open("wb") as file:
            os.fsync(file.fileno())
        (disk / "turn").rename(disk / f"turned {number % 2}")
    subprocess.run(["sync", "-f", disk], check=True)


def resize(memory: Path, size: int) -> None:
    subprocess.run(["mount", "-o", f"remount,size={size}", memory], check=True)


def fail_writeback(disk: Path, *written: Path) -> None:
    """Let the writes fail, another program see it, and the kernel drop the inodes that it can. The
    disk takes everything from then on."""
    synced = subprocess.run(["sync", "-f", disk], check=False, capture_output=True)
    assert synced.returncode != 0
    resize(disk.with_name("memory"), IMAGE_MIB * MIB)
    for path in written:
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)
    Path("/proc/sys/vm/drop_caches").write_text("2")


def write_much(path: Path) -> None:
    with path.open("wb") as file:
        for _ in range(WRITTEN_MIB):
            file.write(os.urandom(MIB))


def fill_log(log: Log) -> None:
    for _ in range(WRITTEN_MIB):
        log.append(batch(1, MIB // 2, 1), leader_epoch=0)
        log.append(batch(1, MIB // 2, 1), leader_epoch=0)


def is_open(path: Path) -> bool:
    names = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return any(os.path.islink(name) and os.readlink(name) == str(path) for name in names)


def test_control_a_closed_file_loses_the_error(disk: Path) -> None:
    path = disk / "file"
    write_much(path)
    fail_writeback(disk, path)
    descriptor = os.open(path, os.O_RDWR)
    os.fsync(descriptor)
    os.close(descriptor)


def test_flush_of_a_segment_closed_for_others_fails(disk: Path) -> None:
    before = open_files()
    limit_open_files(before + 1)
    try:
        log, other = open_log(disk / "a-0"), open_log(disk / "b-0")
        for one in (log, other):
            one.append(batch(1, 10, 1), leader_epoch=0)
            one.flush()  # later ones sync the segment alone
        fill_log(log)
        (path,) = (disk / "a-0").glob("*.log")
        assert is_open(path)
        other.append(batch(1, 10, 1), leader_epoch=0)
        assert not is_open(path)
    finally:
        limit_open_files(None)
    fail_writeback(disk, path)
    with pytest.raises(DiskError):
        log.flush()


def test_control_a_late_sync_misses_the_error(disk: Path) -> None:
    write_much(disk / "file")
    fail_writeback(disk)
    sync_file_system(str(disk))


def test_sync_of_a_directory_reports_errors_since_its_lock(disk: Path) -> None:
    directory = LogDirectory(disk)
    directory.lock.acquire()
    write_much(disk / "file")
    fail_writeback(disk)
    with pytest.raises(DiskError):
        directory.sync()
    directory.lock.release()


def test_descriptor_of_a_lock_is_that_of_its_file(tmp_path: Path) -> None:
    lock = DirectoryLock(tmp_path)
    assert lock.descriptor == -1
    with lock:
        assert os.readlink(f"/proc/self/fd/{lock.descriptor}") == str(lock.path)
    assert lock.descriptor == -1
