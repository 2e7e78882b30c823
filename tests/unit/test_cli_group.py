"""`kbroker group` without a broker: scopes, plans, files, spans of time, mistakes."""

from __future__ import annotations

import io
import struct
from pathlib import Path

import click
import pytest

from kbroker.cli import root
from kbroker.cli.group_plan import clamp, read_plan, write_plan
from kbroker.cli.group_scope import active, by_topic, parse_topics
from kbroker.cli.when import parse_duration_ms
from kbroker.client.groups import GroupDescription, GroupListing, read_assignment, read_subscription

Captured = pytest.CaptureFixture[str]


def test_topics_with_and_without_partitions() -> None:
    assert parse_topics(["t", "u:0", "v.w:2, 10"]) == [("t", ()), ("u", (0,)), ("v.w", (2, 10))]
    for wrong in ("t:", "t:x", ":1", "t:-1", "t:1,,2", "t:１"):
        with pytest.raises(click.BadParameter, match="write TOPIC or TOPIC:PARTITION"):
            parse_topics([wrong])
    assert by_topic([("u", 2), ("t", 1), ("u", 0)]) == {"t": [1], "u": [0, 2]}


def test_offsets_are_fitted_to_their_logs() -> None:
    wanted = {("t", 0): 5, ("t", 1): 99, ("t", 2): -1}
    offsets, moved = clamp(wanted, dict.fromkeys(wanted, (2, 10)))
    assert offsets == {("t", 0): 5, ("t", 1): 10, ("t", 2): 2}
    assert moved == [
        "t-1: 99 is beyond the end, 10 taken",
        "t-2: -1 is before the first record, 2 taken",
    ]


def test_a_file_of_one_group_has_three_columns(tmp_path: Path) -> None:
    file = tmp_path / "f"
    write_plan(file, {"g": {("t", 1): 7, ("t", 0): 5}}, with_group=False)
    assert file.read_text() == "t,0,5\nt,1,7\n"
    assert read_plan(file, ["other"]) == {"other": {("t", 0): 5, ("t", 1): 7}}
    for groups in ([], ["a", "b"]):
        with pytest.raises(click.ClickException, match="line 1 names no group"):
            read_plan(file, groups)


def test_a_file_of_several_groups_has_four(tmp_path: Path) -> None:
    file = tmp_path / "f"
    plan = {"a,b": {("t", 1): 7}, 'say "c"': {("t", 0): 1}}
    write_plan(file, plan, with_group=True)
    assert file.read_text() == '"a,b",t,1,7\n"say ""c""",t,0,1\n'
    assert read_plan(file, []) == plan
    assert read_plan(file, ["a,b"]) == {"a,b": {("t", 1): 7}}
    with pytest.raises(click.ClickException, match="no offsets for group 'd'"):
        read_plan(file, ["d"])


@pytest.mark.parametrize(
    ("tty", "told"), [(True, "x\\x1b[2J\\n,t,0,5\n"), (False, '"x\x1b[2J\n",t,0,5\n')]
)
def test_a_file_on_a_terminal_does_not_steer_it(
    capsys: Captured, monkeypatch: pytest.MonkeyPatch, tty: bool, told: str
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: tty, raising=False)
    write_plan(Path("-"), {"x\x1b[2J\n": {("t", 0): 5}}, with_group=True)
    assert capsys.readouterr().out == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("t,0,5\nt,0\n", "line 2: write topic,partition,offset or group,topic"),
        ("t,zero,5\n", "line 1: 'zero' is not a number"),
        ("t,0,-5\n", "line 1: '-5' is not a number"),
        (f"t,0,{'9' * 5000}\n", "9' is larger than any offset"),
        ("", "has no offsets for group 'g'"),
        ("t,0,5\ncaf\udce9,0,5\n", "is not UTF-8"),
        (f"{'t' * 200_000},0,5\n", "is not CSV: field larger than"),
    ],
)
def test_a_file_that_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, told: str
) -> None:
    data = text.encode(errors="surrogateescape")
    (tmp_path / "f").write_bytes(data)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
    for path in (tmp_path / "f", Path("-")):
        with pytest.raises(click.ClickException, match=told):
            read_plan(path, ["g"])


def test_an_empty_file_is_about_no_group(tmp_path: Path) -> None:
    """It is not about all of them: with --all-groups none is named."""
    (tmp_path / "f").touch()
    with pytest.raises(click.ClickException, match="f has no offsets"):
        read_plan(tmp_path / "f", [])


def test_a_plan_goes_to_standard_output(capsys: Captured) -> None:
    write_plan(Path("-"), {"g": {("t", 0): 5}}, with_group=False)
    assert capsys.readouterr().out == "t,0,5\n"


def test_spans_of_time() -> None:
    hour = 3_600_000
    for text, span_ms in (
        ("90s", 90_000), ("2h", 2 * hour), ("1d12h", 36 * hour), ("1w", 168 * hour),
        ("P1DT12H", 36 * hour), ("pt0.5s", 500), ("PT1H30M", 90 * 60_000), ("P2W", 336 * hour),
    ):  # fmt: skip
        assert parse_duration_ms(text, "--x") == span_ms
    for text in ("", "P", "PT", "1", "1x", "-1h", "h", "P1H"):
        with pytest.raises(click.BadParameter, match="write a span such as"):
            parse_duration_ms(text, "--x")


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["reset", "g"], "give one of --to-earliest"),
        (["reset", "g", "--to-latest", "--to-earliest"], "give only one of --to-earliest"),
        (["reset", "g", "--shift-by", "0"], "give either --topic or --all-topics"),
        (["reset", "g", "--to-offset", "0", "--all-topics", "-t", "t"], "either --topic or"),
        (["reset", "--to-latest", "--all-topics"], "give either GROUP or --all-groups"),
        (["reset", "g", "-a", "--to-latest", "--all-topics"], "give either GROUP or --all-groups"),
        (["reset", "g", "-t", "t:x", "--to-latest"], "'t:x': write TOPIC or TOPIC:PARTITION"),
        (["reset", "g", "-t", "t", "--to-datetime", "noon"], "'noon': write ms since 1970"),
        (["reset", "g", "-t", "t", "--by-duration", "noon"], "'noon': write a span"),
        (["reset", "g", "-t", "t", "--to-datetime", "0001-01-01T00:00:00"], "is before 1970"),
        (["reset", "g", "-t", "t", "--to-datetime", "9" * 23], "is later than times go"),
        (["reset", "g", "-t", "t", "--by-duration", "9" * 400 + "d"], "is longer than times go"),
        (["reset", "g", "-t", f"t:{'9' * 5000}", "--to-latest"], "write TOPIC or TOPIC:PARTITION"),
        (["reset", "g", "-t", "t", "--to-latest", "-x", "--dry-run"], "only one of --execute"),
        (["reset", "g", "--from-file", "pyproject.toml", "-t", "t"], "the file says which"),
        (["seek", "g", "--from-file", "/no/such"], "does not exist"),
        (["describe"], "give either GROUP or --all-groups"),
        (["members", "g", "--all-groups"], "give either GROUP or --all-groups"),
        (["delete"], "give either GROUP or --all-groups"),
        (["offset-delete", "g"], "give either --topic or --all-topics"),
        (["offset-delete", "g", "-t", "t:"], "'t:': write TOPIC"),
        (["list", "-o", "xml"], "'xml' is not one of"),
        (["list", "-s", "stabel"], "'stabel' is none of Empty, Stable, PreparingRebalance, "),
        (["list", "-s", "stabel"], "; did you mean 'Stable'?"),
        (["list", "-s", "Stable", "-s", "zz"], "Reconciling, NotReady, Dead (see"),
        (["list", "-t", "Clasic"], "share, streams; did you mean 'classic'?"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(capsys: Captured, words: list[str], told: str) -> None:
    status = root.run(["group", *words, "-b", "127.0.0.1:1"])
    said = capsys.readouterr()
    assert (status, said.out) == (2, "")
    assert told in said.err
    assert said.err.count("\n") == 1


def group_in(state: str) -> GroupDescription:
    return GroupDescription("g", "classic", "consumer", state, "range", 1, None, None, ())


def test_groups_with_members_are_in_use() -> None:
    assert active(None) is None
    assert active(group_in("Empty")) is None
    for state in ("Stable", "PreparingRebalance", "Reconciling"):
        told = f"group 'g' is in use ({state}, 0 members); stop its consumers first"
        assert active(group_in(state)) == told


@pytest.mark.parametrize(
    ("group_type", "protocol_type", "consumes"),
    [
        ("classic", "consumer", True), ("classic", "", True), ("consumer", "consumer", True),
        ("Classic", "consumer", True), ("", "consumer", True), ("classic", "connect", False),
        ("share", "share", False), ("streams", "streams", False),
    ],
)  # fmt: skip
def test_groups_of_consumers(group_type: str, protocol_type: str, consumes: bool) -> None:
    assert GroupListing("g", protocol_type, "Empty", group_type, 1).consumes is consumes


def test_the_bytes_of_members_are_read_or_let_be() -> None:
    topic = struct.pack(">h", 3) + b"abc"
    subscription = struct.pack(">hi", 1, 2) + topic + struct.pack(">h", 1) + b"b" + b"\xff" * 4
    assert read_subscription(subscription) == ("abc", "b")
    assignment = struct.pack(">hi", 1, 1) + topic + struct.pack(">iii", 2, 4, 0) + b"\xff" * 4
    assert read_assignment(assignment) == (("abc", 0), ("abc", 4))
    for whole, read in ((subscription, read_subscription), (assignment, read_assignment)):
        for size in range(len(whole) - 4):
            assert read(whole[:size]) == ()
        assert read(struct.pack(">hi", 0, -1)) == ()
        assert read(struct.pack(">hih", 0, 1 << 30, -5)) == ()
    assert read_assignment(struct.pack(">hi", 0, 1) + topic + struct.pack(">i", 1 << 30)) == ()
