"""python -m tests.model [classic|consumer|mixed [SEED [STEPS]]]"""

from __future__ import annotations

import sys

from tests.model.simulation import KINDS, Simulation

if __name__ == "__main__":
    kind, seed, steps = [*sys.argv[1:], *("mixed", "1", "100000")[len(sys.argv) - 1 :]]
    simulation = Simulation(int(seed), KINDS[kind](int(seed), 8, 8))
    try:
        simulation.run(int(steps))
    finally:
        print(f"{kind}, seed {seed}, {simulation.steps} steps, {len(simulation.clients)} clients:",
              dict(simulation.happened))  # fmt: skip
