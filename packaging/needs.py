"""What compiling needs of the machine: `python3 packaging/needs.py`, before anything is fetched.

Without it the user would read a compiler's error, or a page of pip's, a minute later. Exit status
1, and one line with the packages, where something is missing.
"""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from itertools import takewhile
from pathlib import Path


def missing() -> str:
    """What is not there, with the packages that bring it; empty where all is."""
    lacking = []
    compiler = os.environ.get("CXX") or sysconfig.get_config_var("CXX") or "g++"
    if not all(map(shutil.which, _programs(compiler))):
        lacking.append((f"a C++ compiler ({compiler})", "g++", "gcc-c++"))
    if not Path(sysconfig.get_path("include"), "Python.h").exists():
        lacking.append(("Python's headers (Python.h)", "python3-dev", "python3-devel"))
    if not lacking:
        return ""
    what, debian, fedora = zip(*lacking, strict=True)
    return (
        f"kbroker is compiled, and {' and '.join(what)} is not there: apt-get install"
        f" {' '.join(debian)} on Debian, dnf install {' '.join(fedora)} on Fedora"
    )


def _programs(command: str) -> list[str]:
    """The compiler of `ccache g++ -pthread`, and what starts it."""
    return list(takewhile(lambda word: not word.startswith("-"), shlex.split(command)))


if __name__ == "__main__":
    sys.exit(missing() or 0)
