"""python -m tests.faults.chaos: rounds of chaos, each with the next seed."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from tests.faults.chaos.round import Round
from tests.faults.chaos.scenarios import SCENARIOS, random_scenario

NAMED_EVERY = 3


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults.chaos", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="the first round's seed")
    parser.add_argument(
        "--minutes", type=float, help="repeat rounds for this time (default: one round)"
    )
    parser.add_argument("--scenario", choices=SCENARIOS, help="play this scenario in each round")
    parser.add_argument("--keep", type=Path, help="copy the folders of rounds with faults to here")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # processes and folders are not left
    ends = time.monotonic() + 60 * (options.minutes or 0)
    seed, bad = options.seed, []
    while True:
        if not play(seed, options.scenario, options.keep):
            bad.append(seed)
        seed += 1
        if time.monotonic() >= ends:
            break
    print(f"{seed - options.seed} rounds, {len(bad)} with faults: {bad}")
    return 1 if bad else 0


def play(seed: int, name: str | None, keep: Path | None) -> bool:
    """Play one round and print its report. Return whether there was no fault."""
    scenario = SCENARIOS[name] if name else random_scenario(seed)
    folder = Path(tempfile.mkdtemp(prefix="kbroker-chaos-"))
    try:
        report = Round(scenario, seed, folder).play()
        print(report, flush=True)
        if report.faults:
            option = f" --scenario {name}" if name else ""
            print(f"  {scenario}\n  again: python -m tests.faults.chaos --seed {seed}{option}",
                  flush=True)  # fmt: skip
            if keep is not None:
                shutil.copytree(folder, keep / f"{scenario.name}-{seed}", dirs_exist_ok=True)
        return not report.faults
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
