"""The simulation of group members, short and long, and that it notices what is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model import canaries
from tests.model.simulation import KINDS, Simulation

SHORT_STEPS, CANARY_STEPS, LONG_STEPS = 5_000, 3_000, 70_000
LONG_SEEDS = range(100, 105)  # of each kind: a million steps in all
LONG_GROUPS = 30  # with 200 to 300 clients


def run(kind: str, seed: int, steps: int, *broken: Callable, groups: int = 8) -> Simulation:
    """Run a simulation; what fails names its seed."""
    simulation = Simulation(seed, KINDS[kind](seed, groups, 8), *broken)
    try:
        simulation.run(steps)
    except Exception as error:
        again = f"python -m tests.model {kind} {seed} {steps} {groups}"
        raise AssertionError(f"{again}, step {simulation.steps}: {error}") from error
    return simulation


@pytest.mark.parametrize("kind", KINDS)
def test_a_short_simulation(kind: str) -> None:
    simulation = run(kind, 1, SHORT_STEPS)
    assert simulation.happened["kills"] > 0
    assert simulation.oracle.commits > 500


def test_what_befalls_the_coordinator_does_befall_it() -> None:
    happened = run("mixed", 5, 2 * SHORT_STEPS).happened
    expected = ("kills", "crashes", "restarts", "append errors", "replays", "topics deleted",
                "became consumer", "became classic", "rests")  # fmt: skip
    assert all(happened[what] for what in expected), happened


@pytest.mark.long
@pytest.mark.parametrize("seed", LONG_SEEDS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_million_steps(kind: str, seed: int) -> None:
    run(kind, seed, LONG_STEPS, groups=LONG_GROUPS)


@pytest.mark.parametrize(
    ("kind", "broken"),
    [("classic", broken) for broken in canaries.CLASSIC]
    + [("consumer", broken) for broken in canaries.CONSUMER],
    ids=lambda value: value if isinstance(value, str) else value.__name__,
)
def test_a_broken_coordinator_is_noticed(kind: str, broken: Callable) -> None:
    with pytest.raises(AssertionError) as raised:
        for seed in range(2, 12):
            run(kind, seed, CANARY_STEPS, broken)
    assert isinstance(raised.value.__cause__, AssertionError)


def test_the_same_seed_gives_the_same_simulation() -> None:
    first, second = (run("mixed", 3, 1_000) for _ in range(2))
    assert first.happened == second.happened
    assert first.world.now_ms == second.world.now_ms
    assert first.world.log == second.world.log
