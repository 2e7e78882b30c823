"""A log in a process of its own, where calls fail or wait as tests/support/nth_call.c says."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from tests.support.native import preloaded
from tests.support.tree import ROOT

KINDS = {
    "pwrite": 1,
    "fdatasync": 2,
    "fsync": 3,
    "ftruncate": 4,
    "fallocate": 5,
    "rename": 6,
    "write": 7,
}


def run_with(shim: Path, folder: Path, script: str) -> str:
    """A script of its own process with the library in front; `fail(kind, n, errno)` arms it."""
    prelude = f"""
        import ctypes, sys
        from pathlib import Path
        from kbroker.errors import DiskError
        from tests.support.logs import batch, open_log, read_all
        library = ctypes.CDLL({str(shim)!r})
        fail, failed = library.fail_next, library.failed
        hold, held, synced = library.hold, library.held, library.synced
        PWRITE, FDATASYNC, RENAME, WRITE, OPEN, LINK, EIO = 1, 2, 6, 7, 8, 9, 5
        folder = Path({str(folder)!r})
    """
    code = textwrap.dedent(prelude) + textwrap.dedent(script)
    told = subprocess.run(
        [sys.executable, "-c", code],
        env=dict(os.environ, LD_PRELOAD=preloaded(shim)),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert told.returncode == 0, told.stderr
    return told.stdout
