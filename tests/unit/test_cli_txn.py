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


@pytest.mark.parametrize("option", ["--producer", "--longer-than"])
@pytest.mark.parametrize("number", ["-5", "9223372036854775808", "99999999999999999999"])
def test_a_number_that_no_broker_can_be_asked_for_is_one_line_and_status_2(
    capsys: Captured, option: str, number: str
) -> None:
    status = root.run(["txn", "list", "-b", "127.0.0.1:1", option, number])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert f"{number} is not in the range 0<=x<=9223372036854775807" in said.err
    assert said.err.count("\n") == 1
