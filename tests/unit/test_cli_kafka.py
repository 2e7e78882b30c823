"""What scripts of Kafka's names read and write in Java's ways; tests/kafka_scripts runs both."""

from __future__ import annotations

import pytest

from kbroker.cli.kafka.java import (
    double_text,
    duration_ms,
    float_text,
    instant_ms,
    split,
    topic_pattern,
)
from kbroker.cli.kafka.lines import LineReader
from kbroker.cli.kafka.options import Given, OptionError, flag, number, text
from kbroker.cli.kafka.tool import say, warn

TABLE = (
    flag("list", "."),
    text("topic", "TOPIC", "."),
    text("state", "STATES", ".", "list", optional=True),
    number("partitions", "N", ".", default=7),
)


@pytest.mark.parametrize(
    ("value", "told"),
    [
        (0.0, "0.0"), (-0.0, "-0.0"), (1.0, "1.0"), (1024.0, "1024.0"), (0.5, "0.5"),
        (9999999.0, "9999999.0"), (1e7, "1.0E7"), (1.5e9, "1.5E9"), (12345678.9, "1.23456789E7"),
        (0.001, "0.001"), (9.999e-4, "9.999E-4"), (1e-4, "1.0E-4"), (1e300, "1.0E300"),
        (-123456.789, "-123456.789"), (100.0, "100.0"), (1e22, "1.0E22"),
        (float("inf"), "Infinity"), (float("-inf"), "-Infinity"),
        (float("nan"), "NaN"), (0.00123, "0.00123"),
    ],
)  # fmt: skip
def test_doubles(value: float, told: str) -> None:
    assert double_text(value) == told


def test_floats() -> None:
    tenth, large = 0.10000000149011612, 16777216.0
    assert (float_text(tenth), float_text(large)) == ("0.1", "1.6777216E7")
    assert float_text(1.1754943508222875e-38) == "1.1754944E-38"


def test_points_in_time() -> None:
    assert instant_ms("1970-01-01T00:00:01.500") == 1500
    assert instant_ms("1970-01-01T01:00:00.5+01:00") == 5
    assert instant_ms("1970-01-01T00:00:00.000-01") == 3_600_000
    for wrong in ("yesterday", "1970-01-01", "1970-13-01T00:00:00.000", "1970-01-01T00:00:00"):
        with pytest.raises(ValueError, match=r"Unparseable date|does not contain a 'T'"):
            instant_ms(wrong)


def test_durations() -> None:
    told = {"PT0S": 0, "P1DT2H": 93_600_000, "PT1.5S": 1500, "-PT1M": -60_000, "PT-1.5S": -1500}
    assert {text: duration_ms(text) for text in told} == told
    for wrong in ("P", "PT", "P1DT", "3h", "P1W", "PT1S2M"):
        with pytest.raises(ValueError, match="cannot be parsed to a Duration"):
            duration_ms(wrong)


def test_expressions() -> None:
    assert split(",", "a,,b,,") == ["a", "", "b"]
    assert split(",", "") == [""]
    pattern = topic_pattern(" 'a.*, b' ")
    assert [bool(pattern.fullmatch(name)) for name in ("abc", "b", "bc")] == [True, True, False]
    with pytest.raises(ValueError, match="is an invalid regex"):
        topic_pattern("(")


def test_command_lines_are_read_as_jopt_simple_reads_them() -> None:
    given = Given(TABLE, ["-topic=a", "stray", "--topic", "--list", "--list", "--state"])
    assert given.values("topic") == ["a", "--list"]
    assert given.has("state") and given.value("state") is None
    assert (given.integer("partitions"), given.has("partitions")) == (7, False)
    with pytest.raises(OptionError, match="multiple arguments for option topic"):
        given.value("topic")
    assert Given(TABLE, ["--list", "--state", "x,y"]).value("state") == "x,y"
    assert not Given(TABLE, ["--", "--list"]).has("list")
    with pytest.raises(OptionError, match=r"^Cannot parse argument '2147483648'"):
        Given(TABLE, ["--partitions", "2147483648"]).integer("partitions")
    for words, wrong in (
        (["--lis"], "lis is not"), (["-lis"], "l is not"), (["--topic"], "requires an argument"),
        (["--state"], r"Option\(s\) \[state\] are unavailable"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=wrong):
            Given(TABLE, words)


def test_lines() -> None:
    reader = LineReader({"parse.key": "TRUE", "parse.headers": "true", "null.marker": "-"})
    assert reader.parse("a:1,b:-\tk\t-", 1) == (b"k", None, [("a", b"1"), ("b", None)])
    assert reader.parse("-\t-\tv\tw", 1) == (None, b"v\tw", None)
    for line, wrong in (
        ("a:1", "No headers delimiter"), ("a:1\tk", "No key separator"),
        ("a\tk\tv", "No header key separator"), ("-:1\tk\tv", "null marker"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=wrong):
            reader.parse(line, 1)
    with pytest.raises(ValueError, match="may not be equal"):
        LineReader({"headers.separator": ":"})


@pytest.mark.parametrize(
    ("tty", "told"),
    [(False, "\n\ta\x1b[2J\x9b\n"), (True, "\n\ta\\x1b[2J\\x9b\n")],
)
def test_lines_are_exact_but_steer_no_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tty: bool, told: str
) -> None:
    for stream in ("stdout", "stderr"):
        monkeypatch.setattr(f"sys.{stream}.isatty", lambda: tty, raising=False)
    say("\n\ta\x1b[2J\x9b")
    warn("\n\ta\x1b[2J\x9b")
    assert capsys.readouterr() == (told, told)
