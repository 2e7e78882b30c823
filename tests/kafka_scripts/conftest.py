"""Both scripts of a name, side by side."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable

import pytest

from tests.support.kafka_scripts import Ended, JavaScripts, run_ours
from tests.support.processes import BrokerProcess

_numbers = itertools.count(10)


class Both:
    """Runs a command with Kafka's script and with ours; names that hold `@` are each one's own."""

    def __init__(
        self, broker: BrokerProcess, java: JavaScripts, patch: pytest.MonkeyPatch, number: int
    ) -> None:
        self.broker = broker
        self.server = ["--bootstrap-server", broker.bootstrap]
        self.marks = (f"-j{number}", f"-k{number}")
        self.ways: tuple[Callable[..., Ended], ...] = (
            java.run,
            lambda tool, words, stdin="": run_ours(patch, tool, words, stdin),
        )

    def __call__(self, command: str, *more: str, stdin: str = "", status: int | None = 0) -> Ended:
        """command: the script's name without `kafka-`, and words with blanks between them; more:
        words that may hold blanks. The broker is named by itself. Fails where the two differ in
        what they print or in status; gives what ours did."""
        tool, *words = command.split()
        ended = []
        for mark, way in zip(self.marks, self.ways, strict=True):
            told = [word.replace("@", mark) for word in (*words, *more)]
            ended.append(way(f"kafka-{tool}", self.server + told, stdin))
        theirs, ours = ended
        seen = [end.seen(mark) for mark, end in zip(self.marks, ended, strict=True)]
        assert seen[1] == seen[0], f"{command} {more}\n{theirs.err[:999]}\n--\n{ours.err[:999]}"
        assert status is None or ours.status == status, ours.out + ours.err
        return ours

    def bare(self, command: str, *more: str) -> Ended:
        """The same for a command line without a broker."""
        tool, *words = command.split()
        theirs, ours = (way(f"kafka-{tool}", [*words, *more], "") for way in self.ways)
        assert (ours.status, ours.out) == (theirs.status, theirs.out), f"{command}\n{theirs.err}"
        if "--help" not in words and words:  # help is in words of our own
            said = [_words(line) for line in theirs.err.split("\n")[:3]]
            told = _words(ours.err.split("\n")[0])
            assert any(told <= line for line in said), f"{ours.err[:200]}\n{theirs.err[:200]}"
        return ours


def _words(line: str) -> set[str]:
    """The words of a line: Java's sets have no order, and its traces name an exception before."""
    return set(re.findall(r"[\w-]+", line))


@pytest.fixture
def both(target: BrokerProcess, monkeypatch: pytest.MonkeyPatch) -> Both:
    """Both scripts on a broker."""
    return Both(target, JavaScripts(), monkeypatch, next(_numbers))
