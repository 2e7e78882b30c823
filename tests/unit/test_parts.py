"""How the test suite is divided into parts, and what the ledger knows of them."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support import ledger, parts
from tests.support.ledger import ALL, FAILED, INTERRUPTED, PASSED, SOME, Run
from tests.support.parts import LONG, SHORT, Part, part, scope_of, split, weigh
from tests.support.rounds import FULL_VARIABLE, combined, rounds, scaled
from tests.support.tree import ROOT

pytest_plugins = ["pytester"]

TABLE = {LONG: {"tests/a.py": (60.0, 3), "tests/spark/x.py": (90.0, 9)}, SHORT: {}}


@pytest.mark.parametrize("text", ["0/3", "4/3", "-1/3", "3", "a/b", "1/", "1/0", ""])
def test_part_that_does_not_exist_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        part(text)


def test_part_is_parsed_and_printed() -> None:
    assert part("2/3") == Part(2, 3) and str(part("2/3")) == "2/3"


def test_files_that_share_a_jvm_are_one_scope() -> None:
    assert scope_of("tests/spark/test_batch.py::test_a[b/c::d]") == "tests/spark"
    assert scope_of("tests/long/test_swap.py::TestIt::test_a") == "tests/long/test_swap.py"
    assert scope_of("tests/spark/test_pipeline.py::test_a") == "tests/spark/test_pipeline.py"
    assert scope_of("tests/client/test_nodes.py::test_a") == parts.CLUSTER
    assert all(any((ROOT / folder).glob("test_*.py")) for folder in parts.SHARING)
    assert all((ROOT / path).is_file() for path in (*parts.ALONE, *parts.OF_CLUSTER))


def test_scopes_weigh_what_their_tests_take() -> None:
    tests = [
        (LONG, "tests/a.py::test_1"), (LONG, "tests/a.py::test_2"), (LONG, "tests/spark/x.py::t"),
        (LONG, "tests/spark/new.py::t"), (SHORT, "tests/a.py::test_3"),
    ]  # fmt: skip
    assert weigh(TABLE, tests) == {
        "tests/a.py": 40.0 + parts.UNKNOWN_S[SHORT], "tests/spark": 10.0 + parts.UNKNOWN_S[LONG]
    }  # fmt: skip


@pytest.mark.parametrize("count", [1, 2, 3, 7, 40])
def test_each_scope_is_in_one_part_and_parts_are_balanced(count: int) -> None:
    weights = {f"scope-{number}": float(number * number % 53 + 1) for number in range(60)}
    made = split(weights, count)
    assert len(made) == count
    assert sorted(scope for one in made for scope in one) == sorted(weights)
    seconds = [sum(weights[scope] for scope in one) for one in made]
    assert max(seconds) - min(seconds) <= max(weights.values())
    assert split(dict(reversed(weights.items())), count) == made


def test_table_of_durations_names_files_that_exist() -> None:
    table = parts.load_table()
    assert set(table) == {LONG, SHORT}
    for suite in table.values():
        for path, (seconds, count) in suite.items():
            assert (ROOT / path).is_file() and seconds > 0 and count > 0, path
    assert parts.load_table(ROOT / "tests" / "not-there.json") == {}


def test_rounds_are_those_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(FULL_VARIABLE, raising=False)
    short, long = rounds(3, long=50, full=500)
    assert short == 3 and long.values == (50,) and long.marks[0].name == "long"
    assert scaled(2, full=20) == 2
    assert combined("abc", [1, 2]) == [("a", 1), ("b", 2), ("c", 1)]
    monkeypatch.setenv(FULL_VARIABLE, "1")
    assert rounds(3, long=50, full=500)[1].values == (500,)
    assert scaled(2, full=20) == 20
    assert combined("ab", [1, 2]) == [("a", 1), ("a", 2), ("b", 1), ("b", 2)]


# --- the ledger

RUN = Run(
    commit="c" * 40, changed=False, date="2026-01-02T03:04:05Z", part="1/2", full=False,
    outcome=PASSED, passed=5, skipped=1, failed=[], seconds=90.0, processor_s=70.0, load=2.0,
    files={"long tests/a.py": [60.0, 3], "short tests/b.py": [0.1, 2]},
)  # fmt: skip


def test_runs_are_read_as_they_were_appended(tmp_path: Path) -> None:
    path = tmp_path / "build" / "ledger.jsonl"
    assert ledger.read(path) == []
    runs = [RUN, replace(RUN, part="2/2", outcome=FAILED, failed=["tests/a.py::t"])]
    for run in runs:
        ledger.append(path, run)
    assert ledger.read(path) == runs


@pytest.mark.parametrize(
    ("others", "verdict"),
    [
        ([], "of 2 parts 2 are missing or failed"),
        ([replace(RUN, part="2/2", outcome=FAILED)], "of 2 parts 2 are missing or failed"),
        ([replace(RUN, part="2/2")], "all parts passed"),
        ([replace(RUN, part="2/2"), replace(RUN, part="1/2", outcome=INTERRUPTED)],
         "of 2 parts 1 are missing or failed"),
        ([replace(RUN, part="2/3")], "of 2 parts 2 are missing or failed"),
        ([replace(RUN, part=ALL)], "all tests passed"),
        ([replace(RUN, part=SOME)], "of 2 parts 2 are missing or failed"),
    ],
)  # fmt: skip
def test_status_says_whether_the_suite_is_complete(others: list[Run], verdict: str) -> None:
    lines = ledger.status([RUN, *others]).splitlines()
    assert lines[-1].startswith(RUN.commit[:12]) and verdict in lines[-1]
    assert "not all" in lines[-1] or not verdict.startswith("of")


def test_status_keeps_trees_apart_and_names_failures() -> None:
    changed = replace(RUN, changed=True, outcome=FAILED, failed=["tests/a.py::test_it"], part=ALL)
    text = ledger.status([RUN, replace(RUN, part="2/2", full=True), changed])
    assert "    failed: tests/a.py::test_it" in text
    assert text.splitlines()[-1] == f"{RUN.commit[:12]}+: not all tests passed"


def test_durations_are_of_the_newest_runs_that_passed() -> None:
    later = replace(RUN, files={"long tests/a.py": [30.0, 3]})
    table = ledger.durations([
        RUN, later, replace(later, outcome=FAILED, failed=["tests/a.py::t"],
                            files={"long tests/a.py": [1e6, 3], "long tests/b.py": [7.0, 1]}),
        replace(later, outcome=INTERRUPTED, files={"long tests/a.py": [1e6, 3]}),
        replace(later, full=True, files={"long tests/a.py": [1e6, 3]}),
    ])  # fmt: skip
    assert table == {LONG: {"tests/a.py": [30.0, 3], "tests/b.py": [7.0, 1]}, SHORT: {}}
    assert json.loads(ledger.table_text(table)) == table
    here = "tests/unit/test_parts.py"
    old = {LONG: {here: [1.0, 1], "tests/gone.py": [1.0, 1]}}
    assert ledger.merged(old, table) == {LONG: {here: [1.0, 1]}, SHORT: {}}


def test_a_run_is_appended_with_its_part_and_failures(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of four files, each with a test that fails, each part of two runs two."""
    monkeypatch.setattr(ledger, "_git", lambda *_: "abc")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    source = "import pytest\n@pytest.mark.long\ndef test_a(): pass\ndef test_b(): assert 0"
    for number in range(4):
        pytester.makepyfile(**{f"test_{number}": source})
    runs = []
    for number in (1, 2):
        pytester.runpytest_subprocess(
            "-p", "tests.support.parts", "-p", "tests.support.ledger", "-p", "no:cacheprovider",
            "-o", "testpaths=.", "--part", f"{number}/2", "--ledger", "ledger.jsonl",
        )  # fmt: skip
        runs.append(ledger.read(pytester.path / "ledger.jsonl")[-1])
    assert [(run.part, run.outcome, run.passed) for run in runs] == [
        ("1/2", FAILED, 2), ("2/2", FAILED, 2)
    ]  # fmt: skip
    files = {key for run in runs for key in run.files}
    assert files == {f"{suite} test_{number}.py" for suite in (LONG, SHORT) for number in range(4)}
    failed = [name for run in runs for name in run.failed]
    assert sorted(failed) == [f"test_{number}.py::test_b" for number in range(4)]


@pytest.mark.parametrize("target", ["test", "test-long"])
def test_a_second_run_reads_its_options(target: str) -> None:
    """pytest takes an option's value for a test to run where such a file exists, as the ledger does
    then: it would not read the suite's options."""
    made = subprocess.run(
        ["make", "-n", target, "PART=1/6"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    words = made.stdout.split()
    options = [word for word in words if word.startswith(("--ledger", "--part"))]
    assert options and all("=" in word for word in options)
