"""What compiling needs is looked for first, and told in one line with the packages."""

from __future__ import annotations

import os
import runpy
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.support.tree import ROOT

NEEDS = ROOT / "packaging" / "needs.py"
NO_COMPILER = "a C++ compiler (no-such-compiler -O2)"


def test_where_all_is_there_nothing_is_told() -> None:
    subprocess.run([sys.executable, NEEDS], check=True)


def test_a_compiler_and_headers_are_told_with_their_packages(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler -O2")
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    missing = runpy.run_path(str(NEEDS))["missing"]
    assert missing() == (
        f"kbroker is compiled, and {NO_COMPILER} and Python's headers (Python.h) is not there:"
        " apt-get install g++ python3-dev on Debian, dnf install gcc-c++ python3-devel on Fedora"
    )
    (tmp_path / "Python.h").touch()
    assert "python3-dev" not in missing() and "g++ on Debian" in missing()
    monkeypatch.setenv("CXX", f"{sys.executable} -pthread")
    assert missing() == ""


def test_setup_asks_before_it_translates(tmp_path: Path) -> None:
    words = ["setup.py", "-q", "build_ext", "--build-lib", "lib", "--build-temp", "temp"]
    words = [str(tmp_path / one) if one in ("lib", "temp") else one for one in words]
    told = subprocess.run(
        [sys.executable, *words], cwd=ROOT, env={**os.environ, "CXX": "no-such-compiler -O2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 1
    assert told.stderr.splitlines()[-1].startswith(f"kbroker is compiled, and {NO_COMPILER} is not")
    assert "rror:" not in told.stderr


def test_make_asks_before_it_fetches(tmp_path: Path) -> None:
    """With a virtual environment that is not there yet."""
    command = ["make", "-C", str(ROOT), f"VENV={tmp_path / 'venv'}", f"PYTHON={sys.executable}"]
    told = subprocess.run(
        [*command, "venv"], env={**os.environ, "CXX": "no-such-compiler -O2"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert told.returncode != 0
    assert NO_COMPILER in told.stderr and not (tmp_path / "venv").exists()
