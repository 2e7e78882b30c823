"""The list of faults holds together: nothing left out, every test there, README up to date."""

from __future__ import annotations

import ast
from pathlib import Path

from tests.faults.__main__ import KEPT, ONLY_FULL, WELL, Row, selected, table
from tests.faults.catalog import BY_NUMBER, FAULTS, LATER, PROMISES, markdown
from tests.support.tree import ROOT, text_of


def test_every_fault_and_promise_has_its_place() -> None:
    assert len(BY_NUMBER) == len(FAULTS)
    tried = {promise for fault in FAULTS for promise in fault.promises}
    assert tried == set(PROMISES)
    assert not LATER.keys() & {*PROMISES, *BY_NUMBER}
    known = {*BY_NUMBER, *PROMISES, *LATER}
    assert known >= {f"F{n}" for n in range(1, 31)} | {f"P{n}" for n in range(1, 16)}
    assert all(0 <= fault.short <= fault.full for fault in FAULTS)


def functions_of(path: str) -> set[str]:
    tree = ast.parse(text_of(Path(path)))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def test_every_test_is_there_and_tells() -> None:
    for fault in FAULTS:
        assert fault.tests, fault.number
        text = "".join(text_of(Path(test.partition("::")[0])) for test in fault.tests)
        for test in fault.tests:
            path, _, name = test.partition("::")
            assert (ROOT / path).is_file(), test
            begun = name.rpartition("::")[2]
            assert any(one.startswith(begun) for one in functions_of(path)), test
            assert all((ROOT / one.partition("::")[0]).is_file() for one in selected(test)), test
            assert selected(test), test
        assert f"\"{fault.number}\"" in text, fault.number


def test_readme_has_the_table() -> None:
    assert markdown() in text_of(Path("README.md"))


def test_a_row_is_judged() -> None:
    fault = FAULTS[0]
    kept = Row(tried=fault.short, control=1)
    assert kept.verdict(fault, full=False) == KEPT
    assert "only" in kept.verdict(fault, full=True)
    assert Row(tried=fault.short).verdict(fault, full=False).startswith("control lost nothing")
    assert Row(tried=fault.short, lost=1, control=1).verdict(fault, full=False) == "LOST"
    assert Row(failed=["test"]).verdict(fault, full=False) == "FAILED: test"
    (slow, *_) = (one for one in FAULTS if not one.short)
    assert Row().verdict(slow, full=False) == ONLY_FULL
    assert Row().verdict(slow, full=True) not in WELL
    assert Row(failed=["test"]).verdict(slow, full=False) not in WELL
    assert fault.what in table([fault], {fault.number: kept}, full=False)
