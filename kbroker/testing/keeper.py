"""The program that clears up after a test process, whatever ended it.

    python -I -S keeper.py PID FOLDER

It leads the process group that brokers are started in. When its parent, process PID, is gone, it
kills that group and removes FOLDER. SIGKILL leaves a process no time to do so itself, and
PR_SET_PDEATHSIG would not do: it fires when the thread that started a child ends, and removes no
files. A group of its own also keeps Ctrl-C on the terminal from the brokers, which tests that are
being torn down still need.

Only what Python has without `site` is imported: this starts beside the first broker.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time

__all__ = ["main"]

_POLL_S = 0.2
_LOOK_AGAIN_S = 0.05
_EMPTY_LOOKS = 3  # a child that was forked in the last moment joins the group a little later


def main(pid: int, folder: str) -> None:
    """Waits for the end of the parent and clears up."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    _wait_for_end(pid)
    empty = 0
    while empty < _EMPTY_LOOKS:
        empty = 0 if _kill_group() else empty + 1
        time.sleep(_LOOK_AGAIN_S)
    import shutil

    shutil.rmtree(folder, ignore_errors=True)


def _wait_for_end(pid: int) -> None:
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    except OSError:  # a kernel or a sandbox that does not have it
        while os.getppid() == pid:
            time.sleep(_POLL_S)
        return
    if os.getppid() == pid:  # else it ended, and its number may be another's
        select.select([descriptor], [], [])


def _kill_group() -> bool:
    """Kills what is in the group beside this process; False where there is nothing."""
    own, group, found = os.getpid(), os.getpgrp(), False
    for name in os.listdir("/proc"):
        if not name.isdigit() or int(name) == own:
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:
                state, _, its_group = file.read().rpartition(b")")[2].split()[:3]
            if int(its_group) == group and state not in (b"Z", b"X"):
                found = True
                os.kill(int(name), signal.SIGKILL)
        except OSError:  # it has just ended
            continue
    return found


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])
