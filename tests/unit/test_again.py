"""What `make test` forgives, and what it does not."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests import again
from tests.support.processes import CRASHES, BrokerProcess

# AddressSanitizer handles SIGSEGV itself, and ends the process with SIGABRT.
DIE = """
import os, signal, sys
number = int(sys.argv[1])
if number != signal.SIGSTOP:
    signal.signal(number, signal.SIG_DFL)
os.kill(os.getpid(), number)
"""


class Dying(BrokerProcess):
    """A "broker" that ends itself by a signal."""

    def __init__(self, home: Path, number: int) -> None:
        super().__init__(home)
        self.number = number

    def command(self) -> list[str]:
        return [sys.executable, "-c", DIE, str(self.number.value)]

    def is_ready(self) -> bool:
        return False


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of a run in which one test failed, whose brokers note in it that they crashed."""
    told = tmp_path / "v" / "cache" / "lastfailed"
    told.parent.mkdir(parents=True)
    told.write_text(json.dumps({"tests/test_one.py::test_it": True}))
    monkeypatch.setenv(CRASHES, str(tmp_path / again.CRASHES))
    return tmp_path


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The second runs, each of which passes."""
    made: list[object] = []

    class Passed:
        returncode = 0

    def run(command: object, **_: object) -> Passed:
        made.append(command)
        return Passed()

    monkeypatch.setattr(again.subprocess, "run", run)
    return made


@pytest.mark.parametrize("number", [signal.SIGSEGV, signal.SIGABRT])
def test_a_broker_that_crashes_is_not_forgiven(
    cache: Path, runs: list[object], number: signal.Signals, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(AssertionError, match="ended with"):
        Dying(cache / "starting", number).start()
    assert again.main(cache, again.TESTS_FAILED) == again.TESTS_FAILED
    assert not runs and number.name in capsys.readouterr().out


def test_a_broker_found_dead_at_its_end_is_not_forgiven(cache: Path, runs: list[object]) -> None:
    broker = Dying(cache / "running", signal.SIGSEGV)
    broker.launch()
    assert broker.process is not None
    broker.process.wait(30)
    broker.kill()
    assert again.main(cache, again.TESTS_FAILED) == again.TESTS_FAILED and not runs


def test_a_broker_that_is_killed_is(cache: Path, runs: list[object]) -> None:
    """Tests do that; what failed beside it runs once more."""
    broker = Dying(cache / "killed", signal.SIGSTOP)
    broker.launch()
    broker.kill()
    assert again.main(cache, again.TESTS_FAILED) == 0 and len(runs) == 1
