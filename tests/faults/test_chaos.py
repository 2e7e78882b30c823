"""F31, rounds of chaos: a slow disk under load, and five seconds later everything works.

Scenarios and what is checked: tests/faults/chaos. An hour: `python -m tests.faults.chaos
--seed 1 --minutes 60`.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from tests.faults.chaos.round import Round
from tests.faults.chaos.scenarios import SCENARIOS, SHORT, Scenario, random_scenario
from tests.support.delays import DelayPlan
from tests.support.processes import BrokerProcess
from tests.support.tally import Tally

LONG = pytest.mark.long
SEED = 1
RANDOM_SEEDS = range(1, 11)


def play(scenario: Scenario, seed: int, folder: Path, tally: Tally) -> None:
    report = Round(scenario, seed, folder).play()
    print(report)
    tally("F31", tried=1, lost=len(report.faults))
    assert not report.faults, report


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "name", [*SHORT, *(pytest.param(one, marks=LONG) for one in SCENARIOS if one not in SHORT)]
)
def test_chaos_scenario_ends_and_everything_works(
    name: str, tmp_path: Path, tally: Tally
) -> None:
    play(SCENARIOS[name], SEED, tmp_path, tally)


@LONG
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("seed", RANDOM_SEEDS)
def test_random_chaos_ends_and_everything_works(seed: int, tmp_path: Path, tally: Tally) -> None:
    play(random_scenario(seed), seed, tmp_path, tally)


def cut_off_logs(broker: BrokerProcess) -> None:
    """Take the records of every topic but the internal ones away, as a lost disk block would."""
    for log in broker.data_dir.glob("[!_]*/*.log"):
        os.truncate(log, 0)


@pytest.mark.timeout(600)
def test_control_logs_that_are_cut_off_are_noticed(tmp_path: Path, tally: Tally) -> None:
    scenario = replace(SCENARIOS["churn"], plan=DelayPlan(per_thousand=2))
    report = Round(scenario, SEED, tmp_path, cut_off_logs).play()
    print(report)
    noticed = [line for line in report.faults if "was acknowledged" in line]
    tally("F31", control=len(noticed))
    assert noticed, report
    assert all(line.startswith("after a restart") for line in report.faults), report
