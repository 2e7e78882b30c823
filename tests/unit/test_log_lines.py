"""The forms of the broker's log lines, and the levels that settings ask for."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kbroker.config import BrokerConfig
from kbroker.config.log_levels import parse_levels
from kbroker.config.types import ConfigError
from kbroker.server.lines import JsonLine, Logfmt, configure_log


def record(message: str, *arguments: Any, **more: Any) -> logging.LogRecord:
    made = logging.LogRecord("kbroker.x", logging.WARNING, "", 0, message, arguments, None)
    made.created, made.msecs = 1_700_000_000.25, 250.0
    made.__dict__.update(more)
    return made


def test_a_line_of_logfmt() -> None:
    told = record("%d topics of %s", 3, 'a "b"', fields={"took_ms": 5, "api": "Produce", "to": ""})
    assert Logfmt().format(told) == (
        "ts=2023-11-14T22:13:20.250Z level=warn logger=kbroker.x"
        ' msg="3 topics of a \\"b\\"" took_ms=5 api=Produce to=""'
    )


def test_a_line_of_json() -> None:
    told = json.loads(JsonLine().format(record("x", fields={"took_ms": 5})))
    assert told == {
        "ts": "2023-11-14T22:13:20.250Z", "level": "warn", "logger": "kbroker.x", "msg": "x",
        "took_ms": 5,
    }  # fmt: skip


@pytest.mark.parametrize("formatter", [Logfmt(), JsonLine()])
def test_nobody_writes_lines_of_their_own(formatter: logging.Formatter) -> None:
    evil = 'a\nts=1 level=error msg="x" \x1b[2J\u2028\udc80 ' + "y" * 10_000
    line = formatter.format(record("client %s", evil, fields={"client": evil}))
    assert line.isprintable() or "\udc80" in line
    assert "\n" not in line and "\x1b" not in line


@pytest.mark.parametrize("formatter", [Logfmt(), JsonLine()])
def test_a_traceback_stays_in_its_line(formatter: logging.Formatter) -> None:
    try:
        raise KeyError("x")
    except KeyError:
        line = formatter.format(record("failed", exc_info=sys.exc_info()))
    assert "\n" not in line and "KeyError" in line


def test_levels() -> None:
    assert parse_levels("k", "") == {"root": logging.INFO}
    assert parse_levels("k", "debug, kbroker.a=ERROR,kbroker.b=TRACE") == {
        "root": logging.DEBUG, "kbroker.a": logging.ERROR, "kbroker.b": logging.DEBUG,
    }  # fmt: skip
    for text in ("LOUD", "a=LOUD", "=INFO"):
        with pytest.raises(ConfigError, match=r"^k: "):
            parse_levels("k", text)


def test_a_level_goes_with_its_setting() -> None:
    logger = logging.getLogger("kbroker.some_room")
    for setting, level in (
        ("INFO,kbroker.some_room=DEBUG", logging.DEBUG), ("WARN", logging.NOTSET),
    ):  # fmt: skip
        configure_log(BrokerConfig({"kbroker.log.level": setting}))
        assert logger.level == level
    assert logging.root.level == logging.WARNING


@pytest.fixture(autouse=True)
def _log_stays() -> Iterator[None]:
    """Levels and, of the handlers that pytest keeps for all tests, the form of a line."""
    level = logging.root.level
    formatters = [(handler, handler.formatter) for handler in logging.root.handlers]
    yield
    logging.root.setLevel(level)
    for handler, formatter in formatters:
        handler.setFormatter(formatter)


_NO_ROOM = """
import logging, os, resource
from kbroker.server import lines
lines.begin_log()
_, most = resource.getrlimit(resource.RLIMIT_FSIZE)

def room(size):
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, most))

room(600)
for number in range(200):
    logging.warning("line %d %s", number, "x" * 100)
room(most)
for number in range(2):
    logging.warning("again %d", number)
"""


def test_lines_for_which_there_is_no_room_are_counted(tmp_path: Path) -> None:
    """As on a full disk: no half of a traceback, whole lines, and how many are missing."""
    file = tmp_path / "kbroker.log"
    with file.open("ab") as log:
        environment = {**os.environ, "KBROKER_LOG_FILE": str(file)}
        subprocess.run([sys.executable, "-c", _NO_ROOM], stderr=log, env=environment, check=True)
    told = [json.loads(line)["msg"] for line in file.read_text().splitlines()]
    whole = len(told) - 3
    assert told[:whole] == [f"line {number} " + "x" * 100 for number in range(whole)]
    assert told[whole:] == [
        f"{200 - whole} lines are missing here: there was no room for them", "again 0", "again 1",
    ]  # fmt: skip


_TALKS = """
import logging, os
from kbroker.server import lines
lines.LOG_FILE_MAX_BYTES = 2000
lines.begin_log()
for number in range({count}):
    logging.warning("line %d", number)
os.write(1, b"behind\\n")
"""


def test_the_file_of_a_detached_broker_is_turned_over(tmp_path: Path) -> None:
    """Nothing is lost between the two files, and no third is kept."""
    file = tmp_path / "kbroker.log"

    def talk(count: int, path: Path) -> None:
        code = _TALKS.format(count=count)
        with file.open("ab") as log:
            environment = {**os.environ, "KBROKER_LOG_FILE": str(path)}
            subprocess.run(
                [sys.executable, "-c", code], stdout=log, stderr=log, env=environment, check=True
            )

    talk(25, file)
    old, new = (tmp_path / "kbroker.log.1").read_text(), file.read_text()
    assert 2000 <= len(old) < 2200
    assert [f"line {n}" in line for n, line in enumerate((old + new).splitlines())] == [
        True
    ] * 25 + [False]
    assert new.endswith("behind\n")
    talk(100, file)
    assert {path.name for path in tmp_path.iterdir()} == {"kbroker.log", "kbroker.log.1"}
    assert file.stat().st_size < 2200
    talk(50, tmp_path / "elsewhere")
    assert file.stat().st_size > 4000, "a file that is not ours is left alone"


_FAILS = """
import logging, os, pathlib, sys, time
from kbroker.server import lines
lines.LOG_FILE_MAX_BYTES = 2000
lines.begin_log()

def say(count):
    for number in range(count):
        logging.warning("line %d", number)

def a_minute_passes(clock=time.monotonic):
    time.monotonic = lambda: clock() + 60

file = pathlib.Path(sys.argv[1])
old = file.with_name(f"{file.name}.1")
before = len(os.listdir("/proc/self/fd"))
"""


def run_in(file: Path, code: str) -> None:
    """What fails in a process of its own, which logs to the file, fails here."""
    environment = {**os.environ, "KBROKER_LOG_FILE": str(file)}
    with file.open("ab") as log:
        command = [sys.executable, "-c", _FAILS + code, str(file)]
        told = subprocess.run(command, stdout=log, stderr=log, env=environment, check=False)
    assert told.returncode == 0, [path.read_text() for path in file.parent.glob("kbroker.log*")]


def test_a_file_that_cannot_be_renamed_costs_no_descriptors(tmp_path: Path) -> None:
    """It is tried again a minute later: much is told while the disk is in trouble."""
    code = """
old.mkdir()
say(50)
assert len(os.listdir("/proc/self/fd")) == before
old.rmdir()
say(1)
assert file.stat().st_size > 4000 and not old.exists(), "tried again at once"
a_minute_passes()
say(2)
assert old.stat().st_size > 4000 and file.read_text().count("line") == 1
"""
    run_in(tmp_path / "kbroker.log", code)


def test_a_turn_that_was_half_done_is_done_later(tmp_path: Path) -> None:
    """The lines go to NAME.1 by then, and there is no NAME."""
    code = """
replace = os.replace
def half(source, target):
    if source.endswith(".new"):
        raise OSError(5, "EIO")
    replace(source, target)
os.replace = half
say(50)
assert old.stat().st_size > 4000 and not file.exists()
os.replace = replace
a_minute_passes()
say(2)
assert old.read_text().count("line") == 51 and file.read_text().count("line") == 1
assert len(os.listdir("/proc/self/fd")) == before
"""
    file = tmp_path / "kbroker.log"
    run_in(file, code)
    assert {path.name for path in tmp_path.iterdir()} == {"kbroker.log", "kbroker.log.1"}
