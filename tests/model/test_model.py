"""The simulation of group members, short and long, and that it notices what is broken."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from kbroker.metadata.records.classic_group import GroupMetadataValue
from tests.model import canaries
from tests.model.simulation import KINDS, Simulation
from tests.support.rounds import scaled
from tests.support.tally import Tally
from tests.support.tree import ROOT

SHORT_STEPS, CANARY_STEPS = 5_000, 3_000
LONG_STEPS = scaled(30_000, full=70_000)
LONG_SEEDS = range(100, scaled(101, full=105))  # of each kind: with FULL=1 a million steps in all
LONG_GROUPS = 30  # with 150 to 300 clients


def run(kind: str, seed: int, steps: int, groups: int = 8) -> dict[str, Any]:
    """What happened in a simulation, run as anybody can run it again."""
    told = [kind, str(seed), str(steps), str(groups)]
    command = [sys.executable, "-m", "tests.model", *told]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    again = f"python -m tests.model {' '.join(told)}"
    assert done.returncode == 0, f"{again}\n{done.stdout}{done.stderr[-4000:]}"
    happened: dict[str, Any] = json.loads(done.stdout)
    return happened


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_simulation(kind: str, tally: Tally) -> None:
    happened = run(kind, 1, SHORT_STEPS)
    tally("F25", tried=happened["kills"])
    assert happened["kills"] > 0
    assert happened["commits"] > 500


def test_what_befalls_the_coordinator_does_befall_it() -> None:
    happened = run("mixed", 5, 2 * SHORT_STEPS)
    expected = ("kills", "crashes", "restarts", "append errors", "replays", "topics deleted",
                "sizes", "became consumer", "became classic", "rests")  # fmt: skip
    assert not [what for what in expected if not happened.get(what)], happened


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_steps(kind: str, seed: int, tally: Tally) -> None:
    tally("F25", tried=run(kind, seed, LONG_STEPS, LONG_GROUPS)["kills"])


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("classic", broken) for broken in canaries.CLASSIC]
    + [("consumer", broken) for broken in canaries.CONSUMER],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_coordinator_is_noticed(kind: str, broken: Callable, tally: Tally) -> None:
    with pytest.raises(AssertionError):
        for seed in range(2, 12):
            Simulation(seed, KINDS[kind](seed, 8, 8), broken).run(CANARY_STEPS)
    tally("F25", control=1)


def test_what_replay_forgets_is_noticed_in_the_step_that_wrote_it() -> None:
    """Not only when the whole log is replayed, which is left out here."""
    sim = Simulation(1, KINDS["classic"](1, 4, 4), canaries.timeouts_that_are_not_replayed)
    sim._befall = lambda: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="and replayed"):
        for _ in range(CANARY_STEPS):
            sim.step()
    values = [record.value for record in sim.world.log]
    generations = [v for v in values if isinstance(v, GroupMetadataValue) and v.members]
    assert len(generations) == 1


def test_the_same_words_give_the_same_simulation() -> None:
    assert run("mixed", 3, 1_000) == run("mixed", 3, 1_000)
