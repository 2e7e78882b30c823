"""Small files of a log directory: replaced whole, read whole, and the lock on the directory.

A file written here is complete or absent after a crash, never half: it is written beside its
name (`NAME.tmp`), synced, renamed over it, and the directory is synced. A `.tmp` that a crash
leaves behind is overwritten by the next write; nobody reads it.

Checkpoint files are Apache Kafka's text format: the version, the number of entries, then one
entry a line. Functions raise `DiskError` for the disk's failures and `CorruptFileError` for
contents that cannot be.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kbroker.errors import CorruptFileError, DiskError, OperatorError

OFFSET_CHECKPOINT_VERSION = 0
LOCK_FILE = ".lock"
_READ_BYTES = 1 << 20

# struct flock of 64-bit Linux: l_type, l_whence, l_start, l_len, l_pid.
_FLOCK = struct.Struct("hhqqi4x")
_WHOLE_FILE = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)


def sync_directory(path: Path) -> None:
    """Make the names in a directory durable: files created, renamed or removed in it."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise DiskError(path, error) from error


def write_atomically(path: Path, data: bytes) -> None:
    """Replace the file's contents durably; after a crash it holds the old or the new, whole."""
    temporary = path.with_name(path.name + ".tmp")
    try:
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            _write_all(descriptor, data)
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        os.rename(temporary, path)
    except OSError as error:
        raise DiskError(path, error) from error
    sync_directory(path.parent)


def _write_all(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def read_file(path: Path) -> bytes | None:
    """Return the whole file, or None where there is none. Raises DiskError. A start reads a small
    file of each partition, for which Python's own file objects cost half the time."""
    parts = []
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            while part := os.read(descriptor, _READ_BYTES):
                parts.append(part)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DiskError(path, error) from error
    return b"".join(parts)


def is_there(path: Path) -> bool:
    """Return whether a path exists. DiskError where the disk does not say: that is no absence."""
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise DiskError(path, error) from error
    return True


def list_names(folder: Path) -> list[str]:
    """Return the sorted names in a folder. DiskError where it cannot be read."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise DiskError(folder, error) from error


def remove_file(path: Path) -> None:
    """Remove a file durably; one that is not there is as good as removed."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise DiskError(path, error) from error
    sync_directory(path.parent)


def remove_folder(path: Path) -> None:
    """Remove a folder with what is in it, as far as that can be done."""
    import shutil  # noqa: PLC0415  it brings much in; most starts have nothing to remove

    shutil.rmtree(path, ignore_errors=True)


def write_checkpoint(path: Path, version: int, entries: Iterable[str]) -> None:
    """Replace a checkpoint file; an entry is one line without its end."""
    lines = list(entries)
    text = "".join(f"{line}\n" for line in (str(version), str(len(lines)), *lines))
    write_atomically(path, text.encode())


def read_checkpoint(path: Path, version: int) -> list[str] | None:
    """The entries of a checkpoint file, or None when there is none."""
    data = read_file(path)
    if data is None:
        return None
    if not data:  # Kafka makes the file before it has anything to write
        return []
    try:
        head, count, *entries = data.decode().splitlines()
        found, expected = int(head), int(count)
    except ValueError:
        raise CorruptFileError(path, "not a checkpoint: no version or no count") from None
    if found != version:
        raise CorruptFileError(path, f"checkpoint of version {found}, expected {version}")
    if expected != len(entries):
        raise CorruptFileError(path, f"checkpoint says {expected} entries, holds {len(entries)}")
    return entries


def write_offset_checkpoint(path: Path, offsets: Mapping[tuple[str, int], int]) -> None:
    """Replace a checkpoint of one offset per (topic, partition)."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    write_checkpoint(path, OFFSET_CHECKPOINT_VERSION, lines)


def read_offset_checkpoint(path: Path) -> dict[tuple[str, int], int]:
    """Offsets by (topic, partition); none when there is no file."""
    offsets = {}
    for line in read_checkpoint(path, OFFSET_CHECKPOINT_VERSION) or ():
        try:
            topic, partition, offset = line.split()
            offsets[topic, int(partition)] = int(offset)
        except ValueError:
            raise CorruptFileError(path, f"not 'topic partition offset': {line!r}") from None
    return offsets


class DirectoryInUseError(OperatorError):
    """Another process holds the directory; `pid` is 0 where the system does not tell."""

    def __init__(self, path: Path, pid: int) -> None:
        self.pid = pid
        holder = f"process {pid}" if pid else "another process"
        super().__init__(
            f"{path} is in use by {holder}: stop it first, or start on another data directory"
        )


class DirectoryLock:
    """The lock on a log directory, on its file `.lock`, which also holds the owner's pid.

    It is a record lock on the whole file, so that Apache Kafka, which takes one too, and kbroker
    keep each other out. The kernel drops it with the process; what a crash leaves is a file with
    a stale pid and no lock. It belongs to the open file, so a second one in the same process is
    refused as well, and a child that a fork leaves the file open in holds it on.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / LOCK_FILE
        self._descriptor: int | None = None

    def acquire(self) -> None:
        """Take the lock or raise `DirectoryInUseError`; never waits."""
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise DiskError(self.path, error) from error
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _WHOLE_FILE)
        except BlockingIOError:
            pid = _holder(descriptor)
            os.close(descriptor)
            raise DirectoryInUseError(self.path.parent, pid) from None
        except OSError as error:
            os.close(descriptor)
            raise DiskError(self.path, error) from error
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # a full disk takes the pid from others, not the lock
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    @property
    def descriptor(self) -> int:
        """Of the file that is locked; -1 where it is not."""
        return -1 if self._descriptor is None else self._descriptor

    def release(self) -> None:
        """Give the lock back; the file stays, empty."""
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # of a disk that has failed
                os.ftruncate(self._descriptor, 0)
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> DirectoryLock:
        self.acquire()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


def lock_holder(directory: Path) -> int | None:
    """Return the pid of the process that has the lock of a log directory, without taking it: 0
    where the system does not say, None where no process has it. Raises DiskError."""
    path = directory / LOCK_FILE
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise DiskError(path, error) from error
    try:
        return None if _conflict(descriptor)[0] == fcntl.F_UNLCK else _holder(descriptor)
    finally:
        os.close(descriptor)


def is_locked(directory: Path) -> bool:
    """Return whether a process has the lock of a log directory, without taking it."""
    return lock_holder(directory) is not None


def _conflict(descriptor: int) -> tuple[Any, ...]:
    """Return the lock, as a struct flock, that stands against one on the whole file; its type is
    F_UNLCK where none does."""
    return _FLOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_OFD_GETLK, _WHOLE_FILE))


def _holder(descriptor: int) -> int:
    """The pid that holds the lock: the kernel knows Kafka's, the file tells kbroker's."""
    pid = int(_conflict(descriptor)[4])
    if pid > 0:
        return pid
    text = os.pread(descriptor, 32, 0).strip()
    return int(text) if text.isdigit() else 0
