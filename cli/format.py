"""Output formats of `kbroker consume`, in kcat's letters, and JSON envelopes.

%s value   %k key   %h headers (a=b,c=d)   %T timestamp in ms   %t topic   %p partition
%o offset  %S bytes of the value   %K bytes of the key   %R %Q the same as big-endian int32
%%  a percent sign; \\n \\t \\r \\0 \\\\ \\xHH as in C
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from kbroker.client.records import FetchedRecord

__all__ = ["DEFAULT_FORMAT", "compile_format", "json_line", "unescape"]

DEFAULT_FORMAT = "%s\\n"
_NULL_SIZE = -1
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Piece = Callable[["FetchedRecord"], bytes]


def compile_format(text: str, *, null: bytes = b"") -> Callable[[FetchedRecord], bytes]:
    """A function from a record to its output. null: what a null key or value is shown as."""
    pieces: list[Piece] = []
    fixed = ""
    at = 0
    while at < len(text):
        if text[at] == "%":
            letter = text[at + 1 : at + 2]
            if letter == "%":
                fixed += "%"
            else:
                if fixed:
                    pieces.append(_constant(unescape(fixed, "--format")))
                fixed = ""
                pieces.append(_piece(letter, null))
            at += 2
        elif text[at] == "\\":
            fixed += text[at : at + 2]
            at += 2
        else:
            fixed += text[at]
            at += 1
    if fixed:
        pieces.append(_constant(unescape(fixed, "--format")))
    return lambda record: b"".join(piece(record) for piece in pieces)


def unescape(text: str, option: str) -> bytes:
    """A text with C's escapes as bytes."""
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out += text[at].encode()
            at += 1
            continue
        letter = text[at + 1 : at + 2]
        digits = text[at + 2 : at + 4]
        if letter in _ESCAPES:
            out += _ESCAPES[letter]
            at += 2
        elif letter == "x" and len(digits) == 2 and set(digits) <= _HEX:
            out.append(int(digits, 16))
            at += 4
        else:
            raise click.BadParameter(
                f"\\{letter} is no escape; use \\n \\t \\r \\0 \\\\ \\xHH", param_hint=option
            )
    return bytes(out)


def json_line(record: FetchedRecord) -> str:
    """A record as kcat's -J envelope; bytes that are no UTF-8 become escapes \\udcXX."""
    return json.dumps(
        {
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "tstype": "logappend" if record.log_append_time else "create",
            "ts": record.timestamp_ms,
            "broker": None,
            "headers": [part for key, value in record.headers for part in (key, _text(value))],
            "key": _text(record.key),
            "payload": _text(record.value),
        }
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "surrogateescape")


def _constant(data: bytes) -> Piece:
    return lambda _: data


def _headers(record: FetchedRecord, null: bytes) -> bytes:
    return b",".join(
        key.encode() + b"=" + (null if value is None else value) for key, value in record.headers
    )


def _size(data: bytes | None) -> int:
    return _NULL_SIZE if data is None else len(data)


def _piece(letter: str, null: bytes) -> Piece:
    table: dict[str, Piece] = {
        "s": lambda r: null if r.value is None else r.value,
        "k": lambda r: null if r.key is None else r.key,
        "h": lambda r: _headers(r, null),
        "T": lambda r: b"%d" % r.timestamp_ms,
        "t": lambda r: r.topic.encode(),
        "p": lambda r: b"%d" % r.partition,
        "o": lambda r: b"%d" % r.offset,
        "S": lambda r: b"%d" % _size(r.value),
        "K": lambda r: b"%d" % _size(r.key),
        "R": lambda r: struct.pack(">i", _size(r.value)),
        "Q": lambda r: struct.pack(">i", _size(r.key)),
    }
    if letter not in table:
        raise click.BadParameter(
            f"%{letter} is no field; use one of {' '.join('%' + name for name in table)}",
            param_hint="--format",
        )
    return table[letter]
