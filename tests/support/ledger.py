"""Ledger of test runs: which part passed on which commit, and how long it took.

    python -m tests.support.ledger status LEDGER...     print the newest run of each part
    python -m tests.support.ledger durations LEDGER...  write tests/durations.json

A run with `--ledger=PATH` appends one line of JSON to that file, which is outside git. Without the
"=" pytest takes a file that exists for a test, and does not read the options of this suite.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.support.parts import LONG, SHORT, SUITE, TABLE, path_of
from tests.support.rounds import is_full
from tests.support.tree import ROOT

#: Files that take less are not worth a line in the table of durations.
LEAST_S = 1.0
PASSED, FAILED, INTERRUPTED = "passed", "failed", "interrupted"
#: The part of a run of every test, and of one whose command line names files.
ALL, SOME = "all", "some"


@dataclass
class Run:
    """One run of a selection of tests."""

    commit: str
    changed: bool  # the working tree differed from the commit
    date: str
    part: str
    full: bool
    outcome: str
    passed: int
    skipped: int
    failed: list[str]
    seconds: float
    processor_s: float
    load: float  # load average over the last 15 minutes of the run
    files: dict[str, list[float]] = field(default_factory=dict)  # seconds and number of tests

    @property
    def tree(self) -> str:
        """Name what was tested: the commit, `+` where files differed, `F` for the full numbers."""
        return self.commit[:12] + "+" * self.changed + " F" * self.full


def read(path: Path) -> list[Run]:
    """Read the runs, oldest first."""
    if not path.exists():
        return []
    return [Run(**json.loads(line)) for line in path.read_text(encoding="utf-8").splitlines()]


def append(path: Path, run: Run) -> None:
    """Append a run as one line."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(run)) + "\n")


# --- the commands


def status(runs: Iterable[Run]) -> str:
    """Describe the newest run of each part, oldest commit first, and the tests that failed."""
    newest: dict[tuple[str, str], Run] = {}
    for run in runs:
        newest.pop((run.tree, run.part), None)
        newest[run.tree, run.part] = run
    lines = [f"{'tree':18} {'date (UTC)':16} {'part':>5} {'outcome':11} {'passed':>6} "
             f"{'skipped':>7} {'failed':>6} {'minutes':>7} {'load':>5}"]  # fmt: skip
    for run in newest.values():
        lines.append(
            f"{run.tree:18} {run.date[:16]} {run.part:>5} {run.outcome:11} {run.passed:6} "
            f"{run.skipped:7} {len(run.failed):6} {run.seconds / 60:7.1f} {run.load:5.1f}"
        )
        lines += [f"    failed: {nodeid}" for nodeid in run.failed]
    for tree in list(dict.fromkeys(run.tree for run in newest.values()))[-1:]:
        lines.append(f"{tree}: {completeness(run for run in newest.values() if run.tree == tree)}")
    return "\n".join(lines)


def completeness(runs: Iterable[Run]) -> str:
    """Say of the newest runs of one tree whether they are the whole suite."""
    passed = {run.part: run for run in runs if run.outcome == PASSED}
    if ALL in passed:
        return "all tests passed"
    counts = sorted({int(part.partition("/")[2]) for part in passed if "/" in part})
    missing = {
        count: [at for at in range(1, count + 1) if f"{at}/{count}" not in passed]
        for count in counts
    }
    if not all(missing.values()):
        return "all parts passed"
    return "; ".join(
        ["not all tests passed",
         *(f"of {count} parts {', '.join(map(str, left))} are missing or failed"
           for count, left in missing.items())]
    )  # fmt: skip


def durations(runs: Iterable[Run]) -> dict[str, dict[str, list[float]]]:
    """Return the table of durations: of each file its newest run that passed whole."""
    table: dict[str, dict[str, list[float]]] = {LONG: {}, SHORT: {}}
    for run in runs:
        if run.outcome == INTERRUPTED or run.full:
            continue
        failed = {path_of(nodeid) for nodeid in run.failed}
        for key, (seconds, count) in run.files.items():
            suite, _, path = key.partition(" ")
            if path not in failed:
                table[suite][path] = [round(seconds, 1), int(count)]
    return {
        suite: {path: row for path, row in sorted(rows.items()) if row[0] >= LEAST_S}
        for suite, rows in table.items()
    }


def table_text(table: Mapping[str, Mapping[str, list[float]]]) -> str:
    """Format the table with a line for each file."""
    suites = []
    for suite, rows in table.items():
        lines = ",\n".join(f"  {json.dumps(path)}: {json.dumps(row)}" for path, row in rows.items())
        suites.append(f" {json.dumps(suite)}: {{\n{lines}\n }}")
    return "{\n" + ",\n".join(suites) + "\n}\n"


def merged(old: Mapping[str, Mapping[str, Any]], new: Mapping[str, Mapping[str, Any]]) -> Any:
    """Return the old table with the rows of the new one; files that are gone are left out."""
    return {
        suite: {
            path: row
            for path, row in sorted({**old.get(suite, {}), **new.get(suite, {})}.items())
            if (ROOT / path).is_file()
        }
        for suite in (LONG, SHORT)
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.support.ledger", description=__doc__)
    parser.add_argument("command", choices=("status", "durations"))
    parser.add_argument("ledgers", type=Path, nargs="+", metavar="LEDGER")
    chosen = parser.parse_args(arguments)
    runs = [run for path in chosen.ledgers for run in read(path)]
    if chosen.command == "status":
        sys.stdout.write(status(runs) + "\n")
        return
    old = json.loads(TABLE.read_text(encoding="utf-8")) if TABLE.exists() else {}
    TABLE.write_text(table_text(merged(old, durations(runs))), encoding="utf-8")


# --- the pytest plugin


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--ledger", metavar="PATH", type=Path, help="Append the run to this file.")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--ledger")
    if path and not hasattr(config, "workerinput") and not config.getoption("collectonly"):
        config.pluginmanager.register(Recorder(path, config), "kbroker-ledger")


class Recorder:
    """Writes the run of this process, and of the test processes that it starts, to the ledger."""

    def __init__(self, path: Path, config: pytest.Config) -> None:
        self.path = path
        whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self.part = str(config.getoption("--part") or ALL) if whole else SOME
        self.began_s = time.monotonic()
        self.outcomes: dict[str, str] = {}
        self.files: dict[str, list[float]] = defaultdict(lambda: [0.0, 0])

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        suite = dict(report.user_properties).get(SUITE, SHORT)
        row = self.files[f"{suite} {path_of(report.nodeid)}"]
        row[0] += report.duration
        if report.when == "setup":
            row[1] += 1
        if self.outcomes.get(report.nodeid) != FAILED and report.outcome != PASSED:
            self.outcomes[report.nodeid] = report.outcome
        self.outcomes.setdefault(report.nodeid, PASSED)

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        kinds = list(self.outcomes.values())
        used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        outcome = {pytest.ExitCode.OK: PASSED, pytest.ExitCode.TESTS_FAILED: FAILED}
        append(self.path, Run(
            commit=_git("rev-parse", "HEAD") or "unknown",
            changed=bool(_git("status", "--porcelain")),
            date=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            part=self.part,
            full=is_full(),
            outcome=outcome.get(pytest.ExitCode(session.exitstatus), INTERRUPTED),
            passed=kinds.count(PASSED),
            skipped=kinds.count("skipped"),
            failed=sorted(name for name, kind in self.outcomes.items() if kind == FAILED),
            seconds=round(time.monotonic() - self.began_s, 1),
            processor_s=round(sum(one.ru_utime + one.ru_stime for one in used), 1),
            load=round(os.getloadavg()[2], 2),
            files={path: [round(row[0], 2), row[1]] for path, row in sorted(self.files.items())},
        ))  # fmt: skip


def _git(*words: str) -> str:
    """Return what git prints; nothing where this is no repository."""
    done = subprocess.run(["git", *words], cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip()


if __name__ == "__main__":
    main(sys.argv[1:])
