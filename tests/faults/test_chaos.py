"""Rounds of chaos: everything works five seconds after a slow disk is quick again.

Scenarios and what is checked: tests/faults/chaos. An hour: `python -m tests.faults.chaos
--seed 1 --minutes 60`.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.chaos.round import Round
from tests.faults.chaos.scenarios import SCENARIOS, SHORT, random_scenario

LONG = pytest.mark.long
SEED = 1
RANDOM_SEEDS = range(1, 11)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(one, marks=LONG) for one in SCENARIOS if one not in SHORT)]
)
def test_chaos_scenario_ends_and_everything_works(name: str, tmp_path: Path) -> None:
    report = Round(SCENARIOS[name], SEED, tmp_path).play()
    print(report)
    assert not report.faults, report


@LONG
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random_chaos_ends_and_everything_works(seed: int, tmp_path: Path) -> None:
    report = Round(random_scenario(seed), seed, tmp_path).play()
    print(report)
    assert not report.faults, report
