"""`kbroker topic browse`: what fits, in which order, and when it stops."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kbroker.cli.browse import cut, pretty
from tests.cli.conftest import Run, Start
from tests.support import wire
from tests.support.kbroker import KbrokerProcess


@pytest.fixture
def filled(kbroker: KbrokerProcess, topic: str, run: Run) -> str:
    """300 records in three partitions, one a second, the last two of them a tombstone and bytes."""
    wire.create_topic(kbroker.port, topic, 3, {"retention.ms": "-1"})
    lines: list[dict[str, Any]] = [
        {"payload": f'{{ "n": {n} }}', "key": f"k{n % 10}", "partition": n % 3, "ts": 1000 * n,
         "headers": ["seventh", str(n)] if n % 7 == 0 else []}
        for n in range(298)
    ]  # fmt: skip
    lines.append({"payload": None, "key": "gone", "partition": 1, "ts": 298_000})
    lines.append({"payload": "\udcff\0", "partition": 2, "ts": 299_000})
    data = "\n".join(map(json.dumps, lines)).encode()
    run("produce", topic, "-J", "--keep-partitions", stdin=data)
    return topic


def found(run: Run, topic: str, *options: str) -> list[int]:
    """Seconds of the records found, in their order."""
    said = run("topic", "browse", topic, "-o", "json", *options)
    return [row["ts"] // 1000 for row in json.loads(said.out)]


def test_what_fits(run: Run, filled: str) -> None:
    everything = ("-n", "0")
    for options, expected in (
        ([], range(300)),
        (["--key", "k3"], range(3, 298, 10)),
        (["--key", "k3", "-H", "seventh"], range(63, 298, 70)),
        (["-H", "seventh=14"], [14]),
        (["-p", "1", "-p", "2"], [n for n in range(300) if n % 3]),
        (["-p", "0", "--from-offset", "10", "--to-offset", "12"], [30, 33, 36]),
        (["--since", "290000"], range(290, 300)),
        (["--since", "1970-01-01T00:00:05Z", "--until", "8000"], [5, 6, 7]),
        (["--since", "10m ago"], []),
        (["--contains", "17 "], [17, 117, 217]),
        (["--contains", "gone"], [298]),
        (["--regex", r'"n": 1[0-3] \}'], [10, 11, 12, 13]),
    ):
        assert found(run, filled, *everything, *options) == list(expected), options


def test_it_stops_where_it_is_told(run: Run, filled: str) -> None:
    assert found(run, filled) == list(range(20))
    assert found(run, filled, "-n", "3") == [0, 1, 2]
    assert found(run, filled, "--tail", "-n", "4") == [299, 298, 297, 296]
    assert found(run, filled, "--scan", "30", "--key", "k3") == [3, 13, 23]
    assert found(run, filled, "--tail", "--key", "k3", "-n", "2") == [293, 283]
    told = run("topic", "browse", filled, "--scan", "30", "--key", "k3").err
    assert told == "30 records looked at, 3 fit; --scan 30 reached, of about 300\n"
    assert run("topic", "browse", filled, "-n", "2").err == (
        "2 records looked at, 2 fit; -n 2 reached\n"
    )


def test_terminal_that_is_not_utf8_shows_escapes(
    start: Start, run: Run, filled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run("produce", filled, "-p", "0", stdin="snow ☃ é\n".encode())
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    for form in ("table", "json"):
        process = start("topic", "browse", filled, "--contains", "snow", "-n", "0", "-o", form)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
        assert b"snow \\u2603 \xe9" in out or b"snow \\u2603 \\u00e9" in out


def test_as_a_table(run: Run, filled: str) -> None:
    said = run("topic", "browse", filled, "--since", "297000", "-o", "wide").out.decode()
    lines = [line.split() for line in said.splitlines()]
    assert lines[0][:3] == ["PARTITION", "OFFSET", "TIME"]
    assert [line[-1] for line in lines[1:]] == ['{"n":297}', "NULL", "\\xff\\x00"]
    assert "create" in lines[1]
    (last,) = json.loads(run("topic", "browse", filled, "--tail", "-n", "1", "-o", "json").out)
    assert (last["payload"], last["key"], last["headers"]) == ("\udcff\0", None, [])


def test_what_is_wrong_is_one_line(run: Run, filled: str) -> None:
    for words, status, wrong in (
        (["no-such"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        ([filled, "-p", "9"], 1, "has no partition 9"),
        ([filled, "--regex", "("], 2, "missing )"),
        ([filled, "-H", "=x"], 2, "NAME=VALUE"),
        ([filled, "--since", "tomorrow"], 2, "10m ago"),
    ):
        told = run("topic", "browse", *words, status=status).err
        assert wrong in told
        assert told.count("\n") == 1


def test_values_for_people() -> None:
    for data, shown in (
        (None, "NULL"),
        (b"", ""),
        ("zwölf\n".encode(), "zwölf\\n"),
        (b'{ "a" : [1, 2] }', '{"a":[1,2]}'),
        (b"[broken", "[broken"),
        (b"\x00\x01\\z\xff", "\\x00\\x01\\x5cz\\xff"),
        (b"[" * 100_000, "[" * 100_000),
    ):
        assert pretty(data) == shown
    assert cut("abcdef", 4) == "abc…"
    assert cut("abcd", 4) == "abcd"
