"""The simulation of transactions, short and long, and that it notices what is broken."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.tree import ROOT
from tests.txn import canaries
from tests.txn.machine import Break
from tests.txn.simulation import Simulation

SHORT_STEPS, CANARY_STEPS, LONG_STEPS = 10_000, 10_000, 50_000
LONG_SEEDS = range(100, scaled(103, full=120))  # with FULL=1 a million steps in all
SELDOM_NOTICED = (canaries.batches_that_nobody_verifies,)  # in about each third schedule


def run(seed: int, steps: int) -> dict[str, Any]:
    """What happened in a simulation, run as anybody can run it again."""
    told = [str(seed), str(steps)]
    command = [sys.executable, "-m", "tests.txn", *told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    again = f"python -m tests.txn {' '.join(told)}"
    assert done.returncode == 0, f"{again}\n{done.stdout}{done.stderr[-4000:]}"
    happened: dict[str, Any] = json.loads(done.stdout)
    return happened


def tried(seed: int, steps: int, tally: Tally) -> dict[str, Any]:
    """The same, told to the table of faults."""
    happened = run(seed, steps)
    tally("F23", tried=happened.get("late records", 0))
    late = sum(count for what, count in happened.items() if what.startswith("late"))
    tally("P5", tried=late)
    tally("F24", tried=late + happened["crashes"] + happened["kills"])
    return happened


def test_a_short_simulation(tally: Tally) -> None:
    """All that may befall it has befallen it, and every reader saw what it should."""
    happened = tried(1, SHORT_STEPS, tally)
    expected = ("told commit", "told abort", "crashes", "appends lost", "kills", "late records",
                "late end", "late offsets", "long silences", "trims", "rests")  # fmt: skip
    assert not [what for what in expected if not happened.get(what)], happened
    assert happened["ends seen"] > 500


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", LONG_SEEDS)
def test_a_million_steps(seed: int, tally: Tally) -> None:
    assert tried(seed, LONG_STEPS, tally)["rests"]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(broken, marks=pytest.mark.long) if broken in SELDOM_NOTICED else broken
        for broken in canaries.BREAKS
    ],
    ids=lambda broken: broken.__name__,
)
def test_a_broken_machine_is_noticed(
    broken: Break, tmp_path: Path, tally: Tally, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(AssertionError):
        for seed in range(2, 32):  # the one that is seldom noticed: none of ten once in sixty
            simulation = Simulation(seed, tmp_path / str(seed), broken)
            with contextlib.closing(simulation.machine):
                simulation.run(CANARY_STEPS)
    caplog.clear()  # a logged exception refers to the frames, and they to the machine
    tally("F24", control=1)
    tally("P5", control=1)
