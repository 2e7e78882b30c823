"""The simulation of group members, short and long, and that it notices what is broken."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.model import canaries
from tests.model.simulation import Simulation, classic_groups

SHORT_STEPS, CANARY_STEPS, LONG_STEPS, LONG_SEEDS = 15_000, 60_000, 100_000, 10


def run(seed: int, steps: int, broken: Callable | None = None) -> Simulation:
    """Run a simulation; what fails names its seed."""
    options = {} if broken is None else {"broken": broken}
    simulation = Simulation(seed, classic_groups(seed, 8, 8), **options)
    try:
        simulation.run(steps)
    except Exception as error:
        told = f"seed {seed}, step {simulation.steps}: {error}; python -m tests.model {seed}"
        raise AssertionError(told) from error
    return simulation


def test_a_short_simulation() -> None:
    simulation = run(1, SHORT_STEPS)
    happened = simulation.happened
    assert min(happened[what] for what in ("kills", "crashes", "append errors", "replays")) > 0
    assert simulation.oracle.commits > 1_000
    assert simulation.oracle.generations > 50


@pytest.mark.long
@pytest.mark.parametrize("seed", range(100, 100 + LONG_SEEDS))
def test_a_million_steps(seed: int) -> None:
    run(seed, LONG_STEPS)


@pytest.mark.parametrize("broken", canaries.CLASSIC, ids=lambda broken: broken.__name__)
def test_a_broken_coordinator_is_noticed(broken: Callable) -> None:
    with pytest.raises(AssertionError) as raised:
        run(2, CANARY_STEPS, broken)
    assert isinstance(raised.value.__cause__, AssertionError)


def test_the_same_seed_gives_the_same_simulation() -> None:
    first, second = run(3, 3_000), run(3, 3_000)
    assert first.happened == second.happened
    assert first.world.now_ms == second.world.now_ms
    assert len(first.world.log) == len(second.world.log)
