"""Formats of `kbroker consume`, and what its -o takes."""

from __future__ import annotations

import json

import click
import pytest

from kbroker.cli.format import compile_format, json_line, unescape
from kbroker.cli.span import parse_offsets
from kbroker.ext.client_record import restored

RECORD = restored(
    "t", 3, 17, 1700000000000, b"key", b"va\xfflue", (("a", b"b"), ("c", None))
)
EMPTY = restored("t", 0, 0, -1, None, None, (), log_append_time=True)


@pytest.mark.parametrize(
    ("form", "shown"),
    [
        ("%s\\n", b"va\xfflue\n"),
        ("%t/%p@%o", b"t/3@17"),
        ("%k%%%T", b"key%1700000000000"),
        ("%S,%K", b"6,3"),
        ("%R%Q", b"\0\0\0\x06\0\0\0\x03"),
        ("%h", b"a=b,c=NULL"),
        ("\\x00\\t\\\\é", "\0\t\\é".encode()),
        ("", b""),
    ],
)
def test_formats(form: str, shown: bytes) -> None:
    assert compile_format(form, null=b"NULL")(RECORD) == shown


def test_null_has_size_minus_one_as_kcat_shows_it() -> None:
    assert compile_format("%k|%s|%K|%S")(EMPTY) == b"||-1|-1"
    assert compile_format("%k", null=b"NULL")(EMPTY) == b"NULL"


@pytest.mark.parametrize("form", ["%x", "%", "\\q", "\\x1", "\\"])
def test_a_wrong_format_is_told(form: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is no (field|escape)"):
        compile_format(form)


def test_json_envelope_is_kcats() -> None:
    assert json.loads(json_line(RECORD)) == {
        "topic": "t",
        "partition": 3,
        "offset": 17,
        "tstype": "create",
        "ts": 1700000000000,
        "broker": None,
        "headers": ["a", "b", "c", None],
        "key": "key",
        "payload": "va\udcfflue",
    }
    told = json.loads(json_line(EMPTY, 4))
    assert (told["tstype"], told["broker"], "headers" in told) == ("logappend", 4, False)


def test_unescape_leaves_other_bytes_alone() -> None:
    assert unescape("a%é", "-K") == "a%é".encode()


def test_offsets() -> None:
    assert parse_offsets(()).begin_at == "beginning"
    assert parse_offsets(("end",)).begin_at == "end"
    assert (parse_offsets(("5",)).begin_at, parse_offsets(("5",)).begin) == ("offset", 5)
    assert (parse_offsets(("-5",)).begin_at, parse_offsets(("-5",)).begin) == ("tail", -5)
    span = parse_offsets(("s@1000", "e@1970-01-01T00:00:02Z"))
    assert (span.begin_at, span.begin, span.end_ms) == ("time", 1000, 2000)
    assert (parse_offsets(("+5",)).begin_at, parse_offsets(("@7",)).begin_at) == ("skip", "time")
    assert parse_offsets(("stored",)).begin_at == "stored"
    with pytest.raises(click.BadParameter, match="one beginning"):
        parse_offsets(("end", "5"))
    for wrong in ("x", "--5", "5.0", "s@x", "", "-"):
        with pytest.raises(click.BadParameter, match="write"):
            parse_offsets((wrong,))
