"""A move between log directories that is cut off at each of its steps leaves one whole copy."""

from __future__ import annotations

import json
import os
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.native import preloaded, shared_library
from tests.support.tree import ROOT

KILLED = 99
RECORDS = 800
SLOW_S = 120


class Moving:
    """Two directories, with children that write, move and read."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.killer = shared_library("killer", home)

    def run(self, place: Path, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tests.reference.move_crash", str(self.killer),
             str(place / "first"), str(place / "second"), *words],
            env=dict(os.environ, LD_PRELOAD=preloaded(self.killer)), cwd=ROOT, capture_output=True,
            text=True, check=False, timeout=SLOW_S,
        )  # fmt: skip

    def begin(self) -> Path:
        """A state to begin from: two moves behind it, so that old entries are in both journals."""
        made = self.home / "begin"
        made.mkdir()
        for words in (["write", str(RECORDS // 2)], ["move", "-1"], ["move", "-1"],
                      ["write", str(RECORDS // 2)]):  # fmt: skip
            done = self.run(made, *words)
            assert done.returncode == 0, done.stderr
        return made


def check(moving: Moving, place: Path) -> dict[str, Any]:
    """All records are there, in one folder that has the partition's name, and again."""
    for _ in range(2):
        done = moving.run(place, "read")
        assert done.returncode == 0, done.stderr
        told: dict[str, Any] = json.loads(done.stdout)
        assert told["offsets"] == list(range(RECORDS))
        folders = [path.parent.name for path in place.glob("*/moved-0")]
        assert folders == [told["home"]], folders
        assert not list(place.glob("*/*-future")) and not list(place.glob("*/*-stray"))
    return told


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("kills", [2, pytest.param(0, marks=pytest.mark.long)])
def test_killed_at_each_step(tmp_path: Path, kills: int) -> None:
    moving = Moving(tmp_path)
    begin = moving.begin()
    whole = tmp_path / "whole"
    shutil.copytree(begin, whole)
    done = moving.run(whole, "move", "1000000")
    assert done.returncode == 0, done.stderr
    steps = int(done.stdout)
    assert check(moving, whole)["home"] == "second"
    chosen = random.Random(1).sample(range(steps), kills) if kills else range(steps)
    last = [steps - 1, steps - 3, steps - 5, steps - 7] if kills else []
    for at in [*chosen, *last]:
        place = tmp_path / f"at-{at}"
        shutil.copytree(begin, place)
        done = moving.run(place, "move", str(at))
        assert done.returncode in (KILLED, 0), done.stderr  # other threads' calls come and go
        check(moving, place)
        shutil.rmtree(place)
