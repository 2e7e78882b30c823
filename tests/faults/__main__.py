"""python -m tests.faults [--full] [--list] [F1 F2 ...]: the faults, tried, as one table."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections import defaultdict
from dataclasses import dataclass, field

import pytest

from tests.faults.catalog import BY_NUMBER, FAULTS, Fault, markdown
from tests.support.rounds import FULL_VARIABLE
from tests.support.tally import PROPERTY, Told
from tests.support.tree import ROOT

KAFKA = "kafka"
KEPT = "kept"
ONLY_FULL = "no short form: try --full"
WELL = {KEPT, ONLY_FULL}


@dataclass
class Row:
    """What became of one fault."""

    tried: int = 0
    lost: int = 0
    control: int = 0
    failed: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)

    def verdict(self, fault: Fault, *, full: bool) -> str:
        """One of WELL, or what is wrong with it."""
        if self.failed:
            return f"FAILED: {', '.join(self.failed)}"
        if self.lost:
            return "LOST"
        if not full and not fault.short:
            return ONLY_FULL
        if not self.control:
            return "control lost nothing" + self._why()
        wanted = fault.full if full else fault.short
        return KEPT if self.tried >= wanted else f"only {self.tried} of {wanted}" + self._why()

    def _why(self) -> str:
        return f" (skipped: {', '.join(self.skipped)})" if self.skipped else ""


class Listener:
    """A pytest plugin: kbroker's half of the chosen tests, and what they tell."""

    def __init__(self, chosen: list[Fault]) -> None:
        self.chosen = chosen
        self.rows: dict[str, Row] = defaultdict(Row)

    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Apache Kafka's half of a test says nothing about us."""
        kept, others = [], []
        for item in items:
            call = getattr(item, "callspec", None)
            of_kafka = call is not None and KAFKA in (
                call.params.get("start_target"), call.params.get("target")
            )  # fmt: skip
            (others if of_kafka else kept).append(item)
        config.hook.pytest_deselected(items=others)
        items[:] = kept

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            for name, value in report.user_properties:
                if name == PROPERTY and isinstance(value, tuple):
                    self._add(Told(*value))
        if report.outcome != "passed":
            self._note(report)

    def _add(self, told: Told) -> None:
        row = self.rows[told.fault]
        row.tried += told.tried
        row.lost += told.lost
        row.control += told.control

    def _note(self, report: pytest.TestReport) -> None:
        for fault in self.chosen:
            if any(report.nodeid.startswith(test) for test in fault.tests):
                row = self.rows[fault.number]
                (row.failed if report.failed else row.skipped).append(report.nodeid.split("/")[-1])


def table(chosen: list[Fault], rows: dict[str, Row], *, full: bool) -> str:
    """One line per fault."""
    lines = [f"{'':4} {'fault':44} {'tried':>8} {'lost':>5} {'control lost':>12}  verdict"]
    for fault in chosen:
        row = rows[fault.number]
        lines.append(
            f"{fault.number:4} {fault.what[:44]:44} {row.tried:8,} {row.lost:5,} "
            f"{row.control:12,}  {row.verdict(fault, full=full)}"
        )
    return "\n".join(lines)


def selected(test: str) -> list[str]:
    """The node ids that begin so: a file, or tests in it."""
    path, _, name = test.partition("::")
    room, _, begun = name.rpartition("::")
    if not begun:
        return [path]
    found = re.findall(r"^ *def (test_\w+)", (ROOT / path).read_text(), re.MULTILINE)
    return ["::".join(filter(None, (path, room, one))) for one in found if one.startswith(begun)]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.faults", description=__doc__)
    parser.add_argument("--full", action="store_true", help="Run the full numbers, for hours.")
    parser.add_argument("--list", action="store_true", help="only say what there is, as Markdown")
    parser.add_argument("faults", nargs="*", metavar="FAULT", help="such as F1; all without")
    told = parser.parse_args()
    if told.list:
        sys.stdout.write(markdown())
        return 0
    if unknown := [number for number in told.faults if number not in BY_NUMBER]:
        parser.error(f"no such fault here: {', '.join(unknown)}")
    chosen = [BY_NUMBER[number] for number in told.faults] or list(FAULTS)
    begun = dict.fromkeys(test for fault in chosen for test in fault.tests)
    tests = list(dict.fromkeys(one for test in begun for one in selected(test)))
    listener = Listener(chosen)
    marks = ["-m", "long or not long"] if told.full else []
    os.environ[FULL_VARIABLE] = "1" if told.full else ""  # before the tests are imported
    pytest.main(["-q", "--no-header", "-p", "no:cacheprovider", *marks, *tests], [listener])
    sys.stdout.write("\n" + table(chosen, listener.rows, full=told.full) + "\n")
    verdicts = [listener.rows[fault.number].verdict(fault, full=told.full) for fault in chosen]
    return 0 if WELL.issuperset(verdicts) else 1


if __name__ == "__main__":
    sys.exit(main())
