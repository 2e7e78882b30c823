"""python -m tests.txn [SEED [STEPS]]: the simulation, as a test that failed names it."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from pathlib import Path

from tests.support.patient import patient_appends
from tests.txn.simulation import Simulation

DEFAULTS = ("1", "10000")
ORDER = "PYTHONHASHSEED"


def main(told: list[str]) -> None:
    """Run one simulation and say what happened in it, as JSON."""
    seed, steps = [*told, *DEFAULTS[len(told) :]]
    with tempfile.TemporaryDirectory() as folder:
        simulation = Simulation(int(seed), Path(folder, "logs"))
        try:
            simulation.run(int(steps))
        finally:
            print(json.dumps(simulation.counts()))
        simulation.machine.close()


if __name__ == "__main__":
    if os.environ.get(ORDER) != "0":
        arguments = [sys.executable, "-m", "tests.txn", *sys.argv[1:]]
        os.execve(sys.executable, arguments, os.environ | {ORDER: "0"})
    with patient_appends():
        main(sys.argv[1:])
