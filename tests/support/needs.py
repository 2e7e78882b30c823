"""What only the system can give: looked for first, and told in one plain line where missing.

With KBROKER_TEST_ALL=1 a missing piece fails the test instead of skipping it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest


def demand_all() -> bool:
    """True where a missing piece of the system must fail tests rather than skip them."""
    return os.environ.get("KBROKER_TEST_ALL") == "1"


def is_sanitized() -> bool:
    """True in `make test-asan` and `make test-tsan`, where memory is several times as much."""
    preloaded = os.environ.get("LD_PRELOAD", "")
    return "libasan" in preloaded or "libtsan" in preloaded


def missing(what: str, package: str) -> None:
    """Skips the calling test, or fails it under KBROKER_TEST_ALL=1."""
    line = f"{what} is not here: install {package}"
    if demand_all():
        pytest.fail(line, pytrace=False)
    pytest.skip(line)


def need_command(command: str, package: str) -> str:
    """The path of a program, or a skip that names its Debian package."""
    path = shutil.which(command)
    if path is None:
        missing(f"the program {command}", package)
    assert path is not None
    return path


@cache
def loop_devices_work() -> bool:
    """True where this user can mount an ext4 image over a loop device."""
    if os.geteuid() != 0 or not Path("/dev/loop-control").exists():
        return False
    if shutil.which("losetup") is None or shutil.which("mkfs.ext4") is None:
        return False
    found = subprocess.run(["losetup", "--find"], check=False, capture_output=True)
    return found.returncode == 0


def need_loop() -> None:
    """Skips where no file system can be mounted over a loop device."""
    if not loop_devices_work():
        missing("a loop device (root, /dev/loop-control)", "e2fsprogs and mount, and run as root")
