"""What a running broker leaves in its data directory so that `stop` and `status` find it.

File `.kbroker-run.json`, one JSON object:

    pid               process id
    pid_ticks         the process's start, clock ticks after boot (field 22 of /proc/PID/stat)
    started_ms        when it began to serve, ms since 1970
    listeners         addresses that are bound, `PLAINTEXT://HOST:PORT`, ports as they are
    durability        `fsync` or `page-cache`
    version           of kbroker
    log_file          where a detached broker logs, or null
    produce_refused   what is reached so that produce is refused now, for want of room, mostly a
                      setting, or null
    http              addresses of metrics and health, `http://HOST:PORT`
    open              those of `listeners` that speak PLAINTEXT, without encryption and logins; null
                      of an earlier version

Prepared by the broker before it serves, so that a file that cannot be written ends the start; there
once it serves, written again when produce is refused or taken again, removed when it
has stopped cleanly. After a crash the file
stays: pid and pid_ticks together tell a live broker from a process that got its number later.
The file under the other name (`.kbroker-run.json.PID`) may stay after a kill; the next start,
which holds the directory's lock, removes it.
It is a help for people and tools, not a lock: the data directory's `.lock` is that.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from kbroker.environment import LOG_FILE
from kbroker.errors import DiskError

__all__ = ["RunInfo", "alive", "discard", "has_open", "pid_ticks", "prepare", "read", "remove",
           "run_file", "running", "tell_refused", "uptime_s"]  # fmt: skip

_NAME = ".kbroker-run.json"


class RunInfo(NamedTuple):
    """The content of the file; see the module's text for the fields."""

    pid: int
    pid_ticks: int
    started_ms: int
    listeners: Sequence[str] = ()
    durability: str = "fsync"
    version: str = ""
    log_file: str | None = None
    produce_refused: str | None = None
    http: Sequence[str] = ()
    open: Sequence[str] | None = None


def run_file(data_dir: str | os.PathLike[str]) -> Path:
    """The file's place in a data directory."""
    return Path(data_dir) / _NAME


def pid_ticks(pid: int) -> int | None:
    """When a process was started, in clock ticks after boot; None where there is none."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return None
    fields = stat.rpartition(")")[2].split()  # the name before may hold anything
    return None if fields[0] in "ZX" else int(fields[19])


def uptime_s(info: RunInfo) -> float:
    """How long the process has run, by a clock that nobody sets."""
    ticks = os.sysconf("SC_CLK_TCK")
    return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - info.pid_ticks / ticks)


def has_open(pid: int, file: Path) -> bool:
    """Whether a process has a file open. Raise OSError where that is not for this user to see, or
    the process or the file is gone."""
    wanted = file.stat()
    for link in os.scandir(f"/proc/{pid}/fd"):
        with contextlib.suppress(FileNotFoundError):
            if os.path.samestat(wanted, link.stat()):
                return True
    return False


def prepare(
    data_dir: str | os.PathLike[str],
    *,
    listeners: list[str],
    durability: str,
    version: str,
    produce_refused: str | None = None,
    http: Sequence[str] = (),
    open_listeners: Sequence[str] = (),
) -> Callable[[], None]:
    """Write the file under another name; the result gives it its own, in one step for readers, and
    says by that that this process serves the directory. Both raise DiskError. The caller holds the
    lock of the directory."""
    info = RunInfo(
        pid=os.getpid(),
        pid_ticks=pid_ticks(os.getpid()) or 0,
        started_ms=time.time_ns() // 1_000_000,
        listeners=listeners,
        durability=durability,
        version=version,
        log_file=os.environ.get(LOG_FILE),
        produce_refused=produce_refused,
        http=http,
        open=open_listeners,
    )
    path = run_file(data_dir)
    try:
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        _remove_stale(path)
        put = _prepare(path, info)
    except OSError as error:
        raise DiskError(path, error) from error

    def publish() -> None:
        try:
            put()
        except OSError as error:
            raise DiskError(path, error) from error

    return publish


def tell_refused(data_dir: str | os.PathLike[str], produce_refused: str | None) -> None:
    """Changes that one field of this process's file."""
    info = read(data_dir)
    if info is not None:
        _put(data_dir, info._replace(produce_refused=produce_refused))


def _put(data_dir: str | os.PathLike[str], info: RunInfo) -> None:
    _prepare(run_file(data_dir), info)()


def _prepare(path: Path, info: RunInfo) -> Callable[[], object]:
    """Write the text beside the file; the result puts it in its place. Both raise OSError."""
    fresh = _fresh(path)
    text = json.dumps(info._asdict()) + "\n"
    try:
        fresh.write_text(text)
    except OSError as error:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT) or not path.exists():
            raise
        return partial(_put_in_place, path, text.encode())
    return partial(_replace, fresh, path)


def _fresh(path: Path) -> Path:
    """The other name, under which this process writes it."""
    return path.with_name(f"{_NAME}.{os.getpid()}")


def _remove_stale(path: Path) -> None:
    """Remove what processes that were killed had prepared."""
    with contextlib.suppress(OSError):
        for stale in path.parent.iterdir():
            pid = stale.name.removeprefix(f"{_NAME}.")
            if pid != stale.name and pid.isascii() and pid.isdigit():
                stale.unlink(missing_ok=True)


def _replace(fresh: Path, path: Path) -> None:
    try:
        fresh.replace(path)
    except OSError:
        with contextlib.suppress(OSError):
            fresh.unlink(missing_ok=True)
        raise


def _put_in_place(path: Path, text: bytes) -> None:
    """On a full disk, of which this has to tell: in blocks that the file has. Spaces, which JSON
    does not mind, end it where the one before ended."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.pwrite(descriptor, text.ljust(os.fstat(descriptor).st_size), 0)
    finally:
        os.close(descriptor)


def read(data_dir: str | os.PathLike[str]) -> RunInfo | None:
    """What the file says, of a live broker or of one that died; None where there is none."""
    try:
        found = json.loads(run_file(data_dir).read_text())
        return RunInfo(**{key: found[key] for key in RunInfo._fields if key in found})
    except (OSError, ValueError, TypeError):
        return None


def discard(data_dir: str | os.PathLike[str]) -> None:
    """Remove what this process has prepared and does not publish."""
    with contextlib.suppress(OSError):
        _fresh(run_file(data_dir)).unlink(missing_ok=True)


def remove(data_dir: str | os.PathLike[str]) -> None:
    """Remove the file, if it is there, and what this process has prepared."""
    for path in (run_file(data_dir), _fresh(run_file(data_dir))):
        path.unlink(missing_ok=True)


def alive(info: RunInfo) -> bool:
    """True while the process that wrote the file runs."""
    return pid_ticks(info.pid) == info.pid_ticks


def running(data_dir: str | os.PathLike[str]) -> RunInfo | None:
    """The broker that serves the directory now, or None."""
    info = read(data_dir)
    return info if info is not None and alive(info) else None
