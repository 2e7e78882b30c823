import errno
import os
import subprocess
import sys

import pytest

from kbroker.errors import CorruptFileError, DiskError
from kbroker.files import (
    DirectoryInUseError,
    DirectoryLock,
    is_locked,
    lock_holder,
    read_checkpoint,
    read_file,
    read_offset_checkpoint,
    remove_file,
    write_atomically,
    write_checkpoint,
    write_offset_checkpoint,
)


def test_write_replaces_the_whole_file(tmp_path):
    path = tmp_path / "meta.properties"
    write_atomically(path, b"a long first version")
    write_atomically(path, b"short")
    assert read_file(path) == b"short"
    assert os.listdir(tmp_path) == ["meta.properties"]


def test_write_syncs_file_before_rename_and_directory_after(tmp_path, monkeypatch):
    steps = []
    fsync, rename = os.fsync, os.rename

    def note_fsync(descriptor):
        steps.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    def note_rename(source, target):
        steps.append("rename")
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_fsync)
    monkeypatch.setattr(os, "rename", note_rename)
    write_atomically(tmp_path / "f", b"x")
    assert steps == [str(tmp_path / "f.tmp"), "rename", str(tmp_path)]


def test_a_failed_sync_leaves_the_old_contents(tmp_path, monkeypatch):
    path = tmp_path / "f"
    write_atomically(path, b"old")

    def fail(descriptor):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(DiskError, match="Input/output error"):
        write_atomically(path, b"new")
    assert read_file(path) == b"old"


def test_a_leftover_of_a_crash_is_overwritten(tmp_path):
    (tmp_path / "f.tmp").write_bytes(b"torn" * 100)
    write_atomically(tmp_path / "f", b"whole")
    assert read_file(tmp_path / "f") == b"whole"


def test_read_and_remove_of_a_missing_file(tmp_path):
    assert read_file(tmp_path / "none") is None
    remove_file(tmp_path / "none")
    with pytest.raises(DiskError):
        read_file(tmp_path)


def test_checkpoint_has_kafkas_text(tmp_path):
    path = tmp_path / "recovery-point-offset-checkpoint"
    write_offset_checkpoint(path, {("flights", 0): 12, ("flights", 1): 0})
    assert path.read_text() == "0\n2\nflights 0 12\nflights 1 0\n"
    assert read_offset_checkpoint(path) == {("flights", 0): 12, ("flights", 1): 0}


def test_checkpoint_without_entries_and_without_file(tmp_path):
    write_checkpoint(tmp_path / "c", 0, [])
    assert (tmp_path / "c").read_text() == "0\n0\n"
    assert read_checkpoint(tmp_path / "c", 0) == []
    assert read_checkpoint(tmp_path / "none", 0) is None
    assert read_offset_checkpoint(tmp_path / "none") == {}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0\n", "no version"),
        ("zero\n0\n", "no version"),
        ("1\n0\n", "version 1, expected 0"),
        ("0\n2\na 0 1\n", "says 2 entries, holds 1"),
        ("0\n0\na 0 1\n", "says 0 entries, holds 1"),
        ("0\n1\na 0\n", "not 'topic partition offset'"),
        ("0\n1\na 0 x\n", "not 'topic partition offset'"),
        ("\xff", "no version"),
    ],
)
def test_a_damaged_checkpoint_is_refused(tmp_path, text, why):
    path = tmp_path / "c"
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(CorruptFileError, match=why):
        read_offset_checkpoint(path)


def test_lock_is_refused_within_the_process_and_tells_the_pid(tmp_path):
    with DirectoryLock(tmp_path), pytest.raises(DirectoryInUseError) as refused:
        DirectoryLock(tmp_path).acquire()
    assert refused.value.pid == os.getpid()
    assert str(os.getpid()) in str(refused.value)
    with DirectoryLock(tmp_path):
        pass


HOLD = """
import sys
from pathlib import Path
from kbroker.files import DirectoryLock
DirectoryLock(Path(sys.argv[1])).acquire()
print("held", flush=True)
sys.stdin.read()
"""

# What Apache Kafka's FileChannel.tryLock does: a POSIX record lock, owned by the process.
HOLD_LIKE_KAFKA = """
import fcntl, sys
file = open(sys.argv[1] + "/.lock", "r+")
fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("program", [HOLD, HOLD_LIKE_KAFKA])
def test_lock_of_another_process_until_it_is_killed(tmp_path, program):
    (tmp_path / ".lock").write_text("999999999\n")
    command = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(DirectoryInUseError) as refused:
            DirectoryLock(tmp_path).acquire()
        assert refused.value.pid == holder.pid
        holder.kill()
        holder.wait()
        with DirectoryLock(tmp_path):
            assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"


def test_lock_holder_leaves_the_lock_alone(tmp_path):
    assert lock_holder(tmp_path) is None and not list(tmp_path.iterdir())
    lock = tmp_path / ".lock"
    lock.write_text("17\n")  # of a process that was killed
    assert lock_holder(tmp_path) is None and not is_locked(tmp_path)
    assert lock.read_text() == "17\n"
    with DirectoryLock(tmp_path):
        assert lock_holder(tmp_path) == os.getpid() and is_locked(tmp_path)
        lock.write_text("")
        assert lock_holder(tmp_path) == 0 and is_locked(tmp_path)
    assert lock_holder(lock) is None


def test_kafka_is_kept_out(tmp_path):
    with DirectoryLock(tmp_path):
        command = [sys.executable, "-c", HOLD_LIKE_KAFKA, str(tmp_path)]
        told = subprocess.run(command, capture_output=True, check=False, stdin=subprocess.DEVNULL)
    assert b"BlockingIOError" in told.stderr


def test_lock_in_a_directory_that_is_not_there(tmp_path):
    with pytest.raises(DiskError, match="No such file"):
        DirectoryLock(tmp_path / "none").acquire()
