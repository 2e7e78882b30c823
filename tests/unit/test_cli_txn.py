"""`kbroker txn` without a broker: mistakes."""

from __future__ import annotations

import pytest

from kbroker.cli import root
from kbroker.txn.transaction import State

Captured = pytest.CaptureFixture[str]


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("ongoin", "'ongoin' is none of "),
        ("ongoin", "; did you mean 'Ongoing'?"),
        ("comitted", "'comitted' is none of "),
        *(("zz", state.label) for state in State),
    ],
)
def test_a_state_that_is_none_is_one_line_and_status_2(
    capsys: Captured, word: str, told: str
) -> None:
    status = root.run(["txn", "list", "-b", "127.0.0.1:1", "--state", word])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert told in said.err
    assert said.err.count("\n") == 1
