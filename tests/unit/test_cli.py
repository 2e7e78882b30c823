"""The command line without a broker: help, mistakes, tables, options that become settings."""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest

from kbroker import runfile
from kbroker.cli import cert, root, tree
from kbroker.cli.launch import Wish, listener_settings, plain_wish, prepare
from kbroker.cli.options import key_values, reachable
from kbroker.cli.places import default_data_dir, service_file, stop_command
from kbroker.cli.render import Column, human_bytes, human_time, print_rows, say
from kbroker.cli.span import parse_offsets
from kbroker.cli.when import parse_time_ms
from tests.support.waits import free_ports

Captured = pytest.CaptureFixture[str]


def run(capsys: Captured, *arguments: str) -> tuple[int, str, str]:
    """Exit status, standard output and standard error of a command."""
    status = root.run(arguments)
    said = capsys.readouterr()
    return status, said.out, said.err


def test_help_names_every_command(capsys: Captured) -> None:
    status, out, _ = run(capsys, "--help")
    assert status == 0
    assert all(f"\n  {name} " in out for name in tree.ROOT)


def test_a_group_alone_shows_its_commands(capsys: Captured) -> None:
    assert run(capsys)[:2] == run(capsys, "--help")[:2]
    status, out, err = run(capsys, "topic")
    assert (status, err) == (0, "")
    assert "  describe " in out


def commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, (module, attribute, _) in tree.ROOT.items():
        if module:
            found.append((name,))
        else:
            found += [(name, below) for below in tree.GROUPS[attribute]]
    return found


@pytest.mark.parametrize("words", commands())
def test_every_command_has_help(capsys: Captured, words: tuple[str, ...]) -> None:
    status, out, err = run(capsys, *words, "--help")
    assert (status, err) == (0, "")
    assert out.startswith(f"Usage: kbroker {' '.join(words)}")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["topik"], "no such command 'topik'; did you mean 'topic'? (see `kbroker --help`)"),
        (["topic", "lst"], "no such command 'lst'; did you mean 'list'?"),
        (["topic", "create"], "Missing argument 'TOPIC...'"),
        (["topic", "create", "t", "-p", "0"], "'--partitions' / '-p'"),
        (["topic", "create", "t", "-c", "nonsense"], "'nonsense': write KEY=VALUE"),
        (["topic", "alter-config", "t"], "nothing to change"),
        (["topic", "add-partitions", "t"], "give one of --num and --total"),
        (["topic", "trim", "t", "-o", "x"], "'x': write a number, end, or @TIME"),
        (["topic", "offsets", "t", "--at", "noon"], "'noon': write ms since 1970"),
        (["topic", "list", "-o", "xml"], "'xml' is not one of"),
        (["topic", "list", "-b", "a:b"], "'b' is not a port"),
        (["start", "--listen", "foo:bar"], "'bar' is not a port"),
        (["start", "--listen", "a:1", "--advertise", "b", "--advertise", "c"], "more --advertise"),
        (["start", "--listen", "a:1", "--advertise", "bad:port:x"], "'bad:port:x' is neither a"),
        (["start", "--listen", "tls://a:1"], "tls:// is no protocol of Apache Kafka's; write SSL://"),
        (["start", "--password-file", "f"], "whose password it is says --user NAME"),
        (["start", "--listen", "0.0.0.0:9092"], "tell their address with --advertise HOST:PORT"),
        (
            ["start", "--listen", "a:1", "--listen", "[::]:2", "--advertise", "b"],
            "cannot connect to ::",
        ),
        (["config", "validate", "/no/such/file"], "does not exist"),
        (["stop", "--timeout", "nan"], "nan is no number"),
        (["top", "--interval", "nan"], "nan is no number"),
        (["top", "--interval", "inf"], "inf is not in the range"),
        (["cluster", "health", "--wait", "nan"], "nan is no number"),
        (["bench", "produce", "--rate", "nan"], "nan is no number"),
        (["consume", "t", "-m", "inf"], "inf is not in the range"),
        (["quota", "set", "--user", "a", "produce=nan"], "produce: 'nan' is no number"),
        (["quota", "set", "--user", "a", "fetch=inf"], "fetch: 'inf' is no number"),
        (["bench", "produce", "-s", "200000000"], "200000000 is not in the range"),
        (["status", "-D", ""], "the name of the directory is empty"),
        (["start", "-D", ""], "the name of the directory is empty"),
        (["backup", "create", ""], "the name of the directory is empty"),
        (["cert", "create", "--host", ""], "'' is neither a name nor an address"),
        (["cert", "create", "--host", "a b"], "'a b' is neither a name nor an address"),
        (["cert", "create", "--host", "a:9093"], "write it without a port"),
        (["cert", "create", "--host", "a" * 64], "is neither a name nor an address"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys: Captured, words: list[str], told: str) -> None:
    status, out, err = run(capsys, *words)
    assert (status, out) == (2, "")
    assert told in err
    assert err.startswith("kbroker: ")
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    "url", ["127.0.0.1:" + "9" * 30, "127.0.0.1:x", "http://" + "x" * 300, "http://[::1"]
)
def test_an_address_of_metrics_that_is_none(capsys: Captured, url: str) -> None:
    status, out, err = run(capsys, "top", "--url", url, "-n", "1")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert f"{url} does not answer: " in err


def test_an_expression_that_is_too_deep(capsys: Captured) -> None:
    status, _, err = run(capsys, "topic", "browse", "t", "--regex", "(" * 3000)
    assert (status, err.count("\n")) == (2, 1)
    assert "--regex" in err


def test_no_broker_is_one_line_and_status_1(capsys: Captured) -> None:
    (free_port,) = free_ports(1)
    status, out, err = run(capsys, "topic", "list", "-b", f"127.0.0.1:{free_port}")
    assert (status, out) == (1, "")
    assert err == (
        f"kbroker: no broker listens on 127.0.0.1:{free_port}; `kbroker start` runs one\n"
    )


def test_plural_names_work(capsys: Captured) -> None:
    assert run(capsys, "topics", "--help")[0] == 0


@pytest.mark.parametrize("host", ["h", "a-1.example", "*.example", "my_host", "größe.example",
                                  "10.0.0.1", "::1"])  # fmt: skip
def test_what_a_server_may_be_called(host: str) -> None:
    assert cert._is_host(host)


@pytest.mark.parametrize(
    ("words", "redirection", "told"),
    [
        ("--help", ">/dev/full", "standard output: No space left on device"),
        ("version", ">/dev/full", "standard output: No space left on device"),
        ("topic list --help", ">/dev/full", "standard output: No space left on device"),
        ("stop --help", ">&-", "standard output: Bad file descriptor"),
        ("--help", ">&-", "standard output: Bad file descriptor"),
        ("version", ">&-", "standard output: Bad file descriptor"),
        ("profile create a -s sasl.password", "<&-", "no value for sasl.password: there is no ter"),
        ("profile create a -s client.id", "</dev/null", "no value for client.id: there is no ter"),
    ],
)
def test_streams_that_are_closed_or_full(
    tmp_path: Path, words: str, redirection: str, told: str
) -> None:
    line = f'exec "$0" -m kbroker.cli {words} {redirection}'
    here = {"XDG_CONFIG_HOME": str(tmp_path), "PYTHONUNBUFFERED": ""}
    done = subprocess.run(
        ["sh", "-c", line, sys.executable], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, timeout=60, check=False, env=os.environ | here,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith(f"kbroker: {told}")
    assert done.stderr.count("\n") == 1


def test_version(capsys: Captured) -> None:
    assert run(capsys, "version")[1].startswith("kbroker ")
    assert run(capsys, "--version") == run(capsys, "version")
    assert "version" in json.loads(run(capsys, "version", "-o", "json")[1])


def test_help_loads_no_client() -> None:
    code = (
        "import sys; from kbroker.cli import root; root.run(['--help']);"
        "bad = {'kio', 'rich', 'kbroker.client', 'kbroker.config', 'asyncio'} & set(sys.modules);"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


def test_status_and_stop_without_a_broker(capsys: Captured, tmp_path: Path) -> None:
    place = str(tmp_path)
    status, out, _ = run(capsys, "stop", "--data-dir", place)
    assert (status, out) == (0, f"no broker runs on {place}\n")
    status, _, err = run(capsys, "status", "--data-dir", place)
    assert status == 1
    assert f"no broker runs on {place}" in err
    status, out, _ = run(capsys, "status", "--data-dir", place, "-o", "json")
    assert (status, json.loads(out)["answers"]) == (1, False)


def test_a_second_start_is_refused_with_the_pid(capsys: Captured, tmp_path: Path) -> None:
    runfile.prepare(tmp_path, listeners=["PLAINTEXT://h:1"], durability="fsync", version="1")()
    status, _, err = run(capsys, "start", "--data-dir", str(tmp_path))
    assert status == 1
    assert f"is served already, by process {os.getpid()} at PLAINTEXT://h:1" in err


def test_listener_options_become_kafkas_settings() -> None:
    assert listener_settings((), ()) == {}
    assert listener_settings(("0.0.0.0:9092",), ("broker.example",)) == {
        "listeners": "PLAINTEXT://0.0.0.0:9092",
        "advertised.listeners": "PLAINTEXT://broker.example:9092",
    }
    # A name that is given stays, and is checked with all settings.
    told = listener_settings(("own://h:1", "h:2"), ("own://a:3", "other://b:4"))
    assert told["advertised.listeners"] == "OWN://a:3,OTHER://b:4"
    assert listener_settings(("127.0.0.1:0", "INTERNAL://[::1]:7", "h"), ()) == {
        "listeners": "PLAINTEXT://127.0.0.1:0,INTERNAL://[::1]:7,PLAINTEXT_3://h:9092",
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,INTERNAL:PLAINTEXT,PLAINTEXT_3:PLAINTEXT"
        ),
    }


def test_a_plain_start_is_read_without_click() -> None:
    words = ["--set", "a=b=c", "--set=d=e", "-D", "x", "--listen", "h:1", "--advertise=i"]
    assert plain_wish(words) == Wish((), ("a=b=c", "d=e"), ("x",), ("h:1",), ("i",))
    assert plain_wish([]) == Wish()
    assert plain_wish(["--dev", "-D", "x"]) == Wish(data_dir=("x",), dev=True)
    for odd in (["--detach"], ["--help"], ["--set"], ["x"], ["-D=x"], ["--sets", "x"]):
        assert plain_wish(odd) is None


def test_a_start_for_developers(
    capsys: Captured, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KBROKER_DATA_DIR", str(tmp_path / "never"))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    ready = prepare(Wish(dev=True, listen=("127.0.0.1:0",)))
    assert ready.throwaway and ready.place.parent == tmp_path
    assert ready.place.stat().st_mode & 0o777 == 0o700
    assert "kbroker.durability=page-cache" in ready.arguments
    synced = Wish(dev=True, data_dir=(str(tmp_path / "d"),), set=("kbroker.durability=fsync",))
    told = prepare(synced)
    assert not told.throwaway and told.place == tmp_path / "d"
    assert "kbroker.durability=page-cache" not in told.arguments
    assert "kbroker.replication.factor.clamp=true" in told.arguments
    plain = prepare(Wish(data_dir=(str(tmp_path / "d"),)))
    assert not [word for word in plain.arguments if word.startswith("kbroker.")]
    assert run(capsys, "start", "--dev", "--detach")[0] == 2


def test_a_start_leaves_alone_what_the_environment_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The broker reads its environment itself; the defaults of the command must not win."""
    monkeypatch.setenv("KBROKER_LISTENERS", "PLAINTEXT://127.0.0.1:7")
    monkeypatch.setenv("KBROKER_LOG_DIRS", str(tmp_path / "d"))
    ready = prepare(Wish())
    assert (ready.place, ready.arguments) == (tmp_path / "d", [])
    other = prepare(Wish(data_dir=(str(tmp_path / "e"),)))
    assert other.arguments == ["--set", f"log.dirs={tmp_path / 'e'}"]


def test_default_data_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", "/x")
    monkeypatch.delenv("KBROKER_DATA_DIR", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert default_data_dir() == Path("/x/kbroker/data")
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr("kbroker.cli.places.SERVICE_FILE", Path("/nowhere/server.properties"))
    assert default_data_dir() == Path("/var/lib/kbroker")
    monkeypatch.setenv("KBROKER_DATA_DIR", "/y")
    assert default_data_dir() == Path("/y")
    assert stop_command(Path("/y")) == "kbroker stop"
    assert stop_command(Path("/z")) == "kbroker stop --data-dir /z"


def test_root_means_the_directory_of_the_service(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the package's settings have it, whatever else in them is wrong."""
    file = tmp_path / "server.properties"
    monkeypatch.delenv("KBROKER_DATA_DIR", raising=False)
    monkeypatch.setattr("kbroker.cli.places.SERVICE_FILE", file)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    for text, place in (
        ("log.dirs=/srv/data\nnum.partition=1\n", "/srv/data"),
        ("log.dir = /srv/one\n", "/srv/one"),
        ("log.dirs=/srv/a, /srv/b\n", "/srv/a"),
        ("log.dirs=/srv/a,/srv/b\nmetadata.log.dir=/srv/b\n", "/srv/b"),
        ("log.dirs=,\n", "/var/lib/kbroker"),
        ("num.partitions=1\n", "/var/lib/kbroker"),
        ("log.dirs=\\u00\n", "/var/lib/kbroker"),
    ):
        file.write_text(text)
        assert default_data_dir() == Path(place)
    assert service_file() == file
    monkeypatch.setattr("os.geteuid", lambda: 1000)
    assert service_file() is None and "srv" not in str(default_data_dir())


def test_reachable_and_key_values() -> None:
    assert reachable("PLAINTEXT://0.0.0.0:9092") == "127.0.0.1:9092"
    assert reachable("PLAINTEXT://[::]:9092") == "[::1]:9092"
    assert reachable("PLAINTEXT://h:1") == "h:1"
    assert key_values(("a=b=c", " d = "), "-c") == {"a": "b=c", "d": ""}


def test_tables_align_and_json_has_every_column(capsys: Captured) -> None:
    columns = [Column("a", "A"), Column("n", "N", number=True), Column("w", "W", wide=True)]
    rows = [{"a": "x", "n": 5, "w": [1, 2]}, {"a": "longer", "n": None, "w": True}]
    print_rows(columns, rows, "table")
    assert capsys.readouterr().out == "A       N\nx       5\nlonger  -\n"
    print_rows(columns, rows, "wide")
    assert capsys.readouterr().out == "A       N  W\nx       5  1,2\nlonger  -  yes\n"
    print_rows(columns, rows, "json")
    assert json.loads(capsys.readouterr().out) == rows


HOSTILE = "x\x1b[2J\x1b]0;owned\x07\nforged  row\u202e\udcff\x9b5m"
ESCAPED = r"x\x1b[2J\x1b]0;owned\x07\nforged  row\u202e\udcff\x9b5m"


@pytest.mark.parametrize("tty", [False, True])
@pytest.mark.parametrize("output", ["table", "wide"])
def test_names_of_anybodys_making_neither_steer_a_terminal_nor_forge_rows(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tty: bool, output: str
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("sys.stdout.isatty", lambda: tty, raising=False)
    columns = [Column("a", "A"), Column("b", "B")]
    print_rows(columns, [{"a": HOSTILE, "b": [HOSTILE, 1]}], output)
    told = re.sub("\x1b\\[[01]m", "", capsys.readouterr().out)  # rich's bold titles
    (row,) = (line for line in told.splitlines() if "owned" in line)
    assert row.split("  ", 1)[0].strip() in ESCAPED
    assert row.count(ESCAPED) == 2
    assert told.replace("\n", "").isprintable()


def test_json_is_exact_and_does_not_steer_a_terminal(capsys: Captured) -> None:
    rows = [{"a": f"{HOSTILE}\x7f\u2066\U000e0041é😀"}]
    print_rows([Column("a", "A")], rows, "json")
    told = capsys.readouterr().out
    assert told.replace("\n", "").isprintable()
    assert "é😀" in told
    assert json.loads(told) == rows


def test_a_line_with_a_name_stays_one_line(capsys: Captured) -> None:
    say(f"group {HOSTILE} deleted")
    say(HOSTILE, err=True)
    assert capsys.readouterr() == (f"group {ESCAPED} deleted\n", f"{ESCAPED}\n")


def test_an_error_does_not_steer_a_terminal(capsys: Captured) -> None:
    assert root.run(["\x1b[2J"]) == 2
    assert root.run(["topic", "list", "-b", "\x1b[2J:x"]) != 0
    assert "\x1b" not in capsys.readouterr().err


def test_a_name_of_32_kb_does_not_swell_a_table_but_is_exact_elsewhere(capsys: Captured) -> None:
    columns = [Column("a", "A"), Column("b", "B")]
    rows = [{"a": "n" * 32_000, "b": 1}, *({"a": "short", "b": 2} for _ in range(8))]
    print_rows(columns, rows, "table")
    told = capsys.readouterr().out
    assert len(told) < 10_000
    assert "n…  1" in told
    print_rows(columns, rows, "wide")
    assert "n" * 32_000 in capsys.readouterr().out
    rows[1]["a"] = "x\x1b[2J\n"
    print_rows(columns, rows, "json")
    assert json.loads(capsys.readouterr().out) == rows


def test_sizes_and_times_for_people() -> None:
    assert [human_bytes(n) for n in (0, 1023, 1536, 5 << 30)] == [
        "0 B",
        "1023 B",
        "1.5 KiB",
        "5.0 GiB",
    ]
    assert [human_time(s) for s in (0, 61, 3600, 90000)] == ["0s", "1m 1s", "1h", "1d 1h"]
    assert parse_time_ms("2026-01-31T12:00:00Z", "-o") == 1769860800000
    assert parse_time_ms("17", "-o") == 17
    assert parse_time_ms("1700000000000", "-o") == 1_700_000_000_000
    with pytest.raises(click.BadParameter, match="of seconds since 1970 make ms: 1700000000000"):
        parse_time_ms("1700000000", "-o")


@pytest.fixture
def zone(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Sets the local time zone."""

    def zone(name: str) -> None:
        monkeypatch.setenv("TZ", name)
        time.tzset()

    yield zone
    monkeypatch.undo()
    time.tzset()


def test_a_time_without_a_zone_is_local_and_exact_to_the_millisecond(
    zone: Callable[[str], None],
) -> None:
    zone("EST5")
    assert parse_time_ms("1970-01-01T00:00:01.001Z", "-o") == 1001
    assert parse_time_ms("1970-01-01T00:00:01.001", "-o") == 1001 + 5 * 3_600_000
    assert parse_time_ms("1970-01-01T02:00:00+02:00", "-o") == 0


@pytest.mark.parametrize(
    "text",
    [
        "1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.9999Z", "0001-01-01T00:00:00",
        "0001-01-01T00:00:00+14:00", "999999d ago", "-999999d",
    ],
)  # fmt: skip
@pytest.mark.parametrize("name", ["UTC", "EST5", "XYZ-14"])
def test_a_time_before_1970_is_refused(zone: Callable[[str], None], name: str, text: str) -> None:
    """-1 and -2 stand for the ends of the log: `topic trim -o @...` would delete all of it."""
    zone(name)
    with pytest.raises(click.BadParameter, match="before 1970"):
        parse_time_ms(text, "-o")
    with pytest.raises(click.BadParameter, match="before 1970"):
        parse_offsets((f"s@{text}",))


@pytest.mark.parametrize("name", ["UTC", "EST5", "XYZ-14"])
def test_times_go_as_far_as_the_protocol(zone: Callable[[str], None], name: str) -> None:
    zone(name)
    assert parse_time_ms(str(2**63 - 1), "-o") == 2**63 - 1
    assert parse_time_ms("0" * 30 + "5", "-o") == 5
    for text in (str(2**63), "9" * 5000):
        with pytest.raises(click.BadParameter, match="later than times go"):
            parse_time_ms(text, "-o")
    with pytest.raises(click.BadParameter, match="longer than times go"):
        parse_time_ms("9" * 400 + "w ago", "-o")
    with contextlib.suppress(click.BadParameter):  # as far as the zone lets the calendar go
        assert parse_time_ms("9999-12-31T23:59:59", "-o") > 0
