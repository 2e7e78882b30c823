"""python -m tests.model [SEED [STEPS]]"""

from __future__ import annotations

import sys

from tests.model.simulation import Simulation, classic_groups

if __name__ == "__main__":
    seed = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    steps = int(sys.argv[2]) if len(sys.argv) > 2 else 100_000
    simulation = Simulation(seed, classic_groups(seed, 8, 8))
    try:
        simulation.run(steps)
    finally:
        print(f"seed {seed}, {simulation.steps} steps, {len(simulation.clients)} clients:",
              dict(simulation.happened))  # fmt: skip
