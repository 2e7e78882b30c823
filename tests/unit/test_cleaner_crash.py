"""A cleaning that is killed at each of its steps, and a recovery that is killed on its way."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.native import preloaded, shared_library
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.tree import ROOT

# Steps of the past before and after the cleaning that nobody disturbs.
SHORT, LONG = 6, 20


def crash(
    tmp_path: Path, seed: int, length: int, recoveries: int | str, states: Path | None = None
) -> int:
    """tests.reference.cleaner_crash: the number of steps."""
    (tmp_path / "log").mkdir()
    killer = shared_library("killer", tmp_path)
    told = subprocess.run(
        [sys.executable, "-m", "tests.reference.cleaner_crash", str(killer),
         str(tmp_path / "log" / "topic-0"), str(seed), str(length), str(recoveries),
         str(states or "")],
        env=dict(os.environ, LD_PRELOAD=preloaded(killer)), cwd=ROOT, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert told.returncode == 0, told.stderr
    return int(told.stdout)


def test_killed_at_every_step(tmp_path: Path, tally: Tally) -> None:
    steps = crash(tmp_path, 8, SHORT, 3)
    tally("P10", tried=steps)
    assert steps > 20


def test_control_a_result_without_its_end_is_noticed(tmp_path: Path, tally: Tally) -> None:
    noticed = crash(tmp_path, 8, SHORT, "canary")
    tally("P10", control=noticed)
    assert noticed


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_each_step_fails(tmp_path: Path, code: int, tally: Tally) -> None:
    steps = crash(tmp_path, 8, SHORT, f"fail:{code}")
    tally("P10", tried=steps)
    assert steps > 20


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(10, scaled(14, full=30)))
def test_killed_at_every_step_of_a_longer_past(tmp_path: Path, seed: int, tally: Tally) -> None:
    steps = crash(tmp_path, seed, LONG, 5)
    tally("P10", tried=steps)
    assert steps > 20
