"""python -m tests.model [classic|consumer|mixed [SEED [STEPS [GROUPS]]]]

The same words give the same simulation: the order of sets must not depend on the process.
"""

from __future__ import annotations

import json
import os
import sys

from tests.model.simulation import KINDS, Simulation
from tests.support.patient import patient_appends

DEFAULTS = ("mixed", "1", "100000", "8")
ORDER = "PYTHONHASHSEED"


def main(told: list[str]) -> None:
    """Run one simulation and say what happened in it, as JSON."""
    kind, seed, steps, groups = [*told, *DEFAULTS[len(told) :]]
    simulation = Simulation(int(seed), KINDS[kind](int(seed), int(groups), 8))
    try:
        simulation.run(int(steps))
    finally:
        counts = {"steps": simulation.steps, "clients": len(simulation.clients),
                  "now": simulation.world.now_ms, "commits": simulation.oracle.commits,
                  "records": simulation.world.appended}  # fmt: skip
        print(json.dumps(counts | simulation.happened))


if __name__ == "__main__":
    if os.environ.get(ORDER) != "0":
        arguments = [sys.executable, "-m", "tests.model", *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | {ORDER: "0"})
    with patient_appends():
        main(sys.argv[1:])
