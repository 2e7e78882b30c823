"""python -m tests.model [classic|consumer|mixed [SEED [STEPS [GROUPS]]]]"""

from __future__ import annotations

import sys

from tests.model.simulation import KINDS, Simulation

DEFAULTS = ("mixed", "1", "100000", "8")

if __name__ == "__main__":
    told = sys.argv[1:]
    kind, seed, steps, groups = [*told, *DEFAULTS[len(told) :]]
    simulation = Simulation(int(seed), KINDS[kind](int(seed), int(groups), 8))
    try:
        simulation.run(int(steps))
    finally:
        print(f"{kind}, seed {seed}, {simulation.steps} steps, {len(simulation.clients)} clients:",
              dict(simulation.happened))  # fmt: skip
