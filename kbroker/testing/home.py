"""Where the brokers of one test process live: a folder and a process group with a keeper."""

from __future__ import annotations

import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

__all__ = ["Home", "close_home", "home"]

_KEEPER = Path(__file__).with_name("keeper.py")


class Home:
    """A folder under the temporary one, a subfolder for each broker. Thread-safe."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        name = f"kbroker-{self.pid}-{os.urandom(4).hex()}"
        self.folder = Path(tempfile.gettempdir()).absolute() / name
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._keeper = _start_keeper(self.folder)
        self.folder.mkdir(mode=0o700)  # not before there is somebody to remove it

    def new_folder(self) -> Path:
        """A folder for a broker, made."""
        made = self.folder / f"broker-{next(self._numbers)}"
        made.mkdir()
        return made

    def group(self) -> int:
        """The process group that a broker has to join."""
        with self._lock:
            if self._keeper.poll() is not None:
                self._keeper = _start_keeper(self.folder)
            return self._keeper.pid

    def close(self) -> None:
        """Ends the keeper and removes the folder; its brokers have ended, but for one whose start
        was interrupted before anybody knew it."""
        if os.getpid() != self.pid:  # a fork of the test process: nothing of it is its own
            return
        if self._keeper.poll() is None:
            os.killpg(self._keeper.pid, signal.SIGKILL)
        self._keeper.wait()
        shutil.rmtree(self.folder, ignore_errors=True)


def _start_keeper(folder: Path) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-I", "-S", str(_KEEPER), str(os.getpid()), str(folder)]
    null = subprocess.DEVNULL
    return subprocess.Popen(
        command, stdin=null, stdout=null, stderr=null, cwd="/", process_group=0
    )


_lock = threading.Lock()
_homes: list[Home] = []  # the last is this process's, unless it is a fork


def home() -> Home:
    """The one of this process."""
    with _lock:
        if not _homes or _homes[-1].pid != os.getpid():
            _homes.append(Home())
        return _homes[-1]


def close_home() -> None:
    """Ends that of this process, if there is one; the next broker makes another."""
    with _lock:
        if _homes and _homes[-1].pid == os.getpid():
            _homes.pop().close()
