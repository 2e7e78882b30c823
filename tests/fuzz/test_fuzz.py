"""Every fuzz target in a process of its own, and the canaries that prove that they can fail."""

import signal
import subprocess
import sys

import pytest

from tests.fuzz import client_answers, files, offsets, produce_answers, requests, targets
from tests.fuzz.targets import CANARIES
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.tree import ROOT

ROOMS = (targets, files, offsets, requests, produce_answers, client_answers)
TARGETS = {name: target for room in ROOMS for name, target in room.TARGETS.items()}


LONG_ITERATIONS = scaled(10_000, full=40_000)


def run(name: str, seed: int, iterations: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.fuzz", name, str(seed), str(iterations)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", TARGETS)
def test_target(name: str, tally: Tally) -> None:
    """The invariant is the target's own: see tests/fuzz/targets.py."""
    told = run(name, 1, 250)
    tally("F20", tried=250, lost=int(told.returncode != 0))
    assert told.returncode == 0, told.stderr


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", TARGETS)
@pytest.mark.parametrize("seed", scaled([2], full=[2, 3]))
def test_target_for_long(name: str, seed: int, tally: Tally) -> None:
    told = run(name, seed, LONG_ITERATIONS)
    tally("F20", tried=LONG_ITERATIONS, lost=int(told.returncode != 0))
    assert told.returncode == 0, told.stderr


def test_canary_that_breaks_its_invariant(tally: Tally) -> None:
    told = run("canary_liar", 1, 400)
    tally("F20", control=int(told.returncode != 0))
    assert told.returncode == 1
    assert "broken by" in told.stderr


def test_canary_that_reads_too_far(tally: Tally) -> None:
    told = run("canary_trespasser", 1, 400)
    tally("F20", control=int(told.returncode != 0))
    assert told.returncode == -signal.SIGSEGV


def test_every_canary_has_its_test() -> None:
    assert set(CANARIES) == {"canary_liar", "canary_trespasser"}
