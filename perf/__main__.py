"""Measure kbroker against its floor and beside others; see perf/README.md.

With neither --row nor --system the whole table is measured and put into README.md.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import TypeVar

from perf import gil, lifecycle, report, rows, systems
from perf.native import BUILD, program
from perf.pages import used_pages
from perf.series import Results, run_rounds, say

T = TypeVar("T")

LIFE_SYSTEMS = ("kbroker-fsync", "kafka", "tansu")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m perf", description=__doc__.split("\n")[0])
    parser.add_argument("--row", action="append", choices=sorted(rows.BY_NAME), metavar="ROW",
                        help=f"only this row, may be repeated: {', '.join(rows.BY_NAME)}")
    parser.add_argument("--system", action="append", choices=sorted(systems.BY_NAME),
                        metavar="SYSTEM",
                        help=f"only this system, may be repeated: {', '.join(systems.BY_NAME)}")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each row of a round")
    parser.add_argument("--quick", action="store_true",
                        help="one round, and the page cache as it is: a look, not a figure")
    parser.add_argument("--life", action="store_true",
                        help="only start, idle and scale")  # fmt: skip
    return parser.parse_args()


def chosen(by_name: dict[str, T], names: Sequence[str] | None) -> list[T]:
    return list(by_name.values()) if names is None else [by_name[name] for name in names]


def save(results: Results, measured: Sequence[lifecycle.Measured]) -> None:
    """Every figure of every round, for whoever wants to look closer."""
    rounds = [
        {"row": row, "system": system, "rounds": figures}
        for (row, system), figures in results.items()
    ]
    life = [vars(one) for one in measured]
    path = BUILD / "results.json"
    path.write_text(json.dumps({"rows": rounds, "life": life}, indent=1))
    say(f"every figure of every round: {path}")


def main() -> None:
    told = arguments()
    # A start without compiled modules in the cache is not what a user meets from the second on.
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    program("load")
    program("floor")
    whole = told.row is None and told.system is None and not told.life
    measured: list[lifecycle.Measured] = []
    results: Results = {}
    missing: dict[str, str] = {}
    if not told.life:
        with used_pages(not told.quick) as pages:
            results, missing = run_rounds(
                chosen(systems.BY_NAME, told.system), chosen(rows.BY_NAME, told.row),
                1 if told.quick else told.rounds, told.seconds, pages,
            )  # fmt: skip
    if whole or told.life:
        measured = lifecycle.measure(chosen(systems.BY_NAME, told.system or LIFE_SYSTEMS))
        measured += gil.measure() if whole else []
    save(results, measured)
    command = " ".join(("python -m perf", *sys.argv[1:])) if sys.argv[1:] else "make bench"
    rounds = 1 if told.quick else told.rounds
    taken = f"medians of {rounds} rounds of {told.seconds:g} s, all in one sitting"
    text = report.report(results, measured, missing, f"`{command}`", taken)
    print(text)
    if whole and not told.quick:
        report.replace_in_readme(text)


if __name__ == "__main__":
    main()
