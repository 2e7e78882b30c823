"""Output formats of `kbroker consume`, in kcat's letters, and JSON envelopes.

%s value   %k key   %h headers (a=b,c=d)   %T timestamp in ms   %t topic   %p partition
%o offset  %S bytes of the value   %K bytes of the key   %R %Q the same as big-endian int32
%%  a percent sign; \\n \\t \\r \\0 \\\\ \\xHH as in C
"""

from __future__ import annotations

import json.encoder
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import click

if TYPE_CHECKING:
    from kbroker.cli.unpack import Unpack
    from kbroker.client import Columns, Record
    from kbroker.ext.client_columns import BinaryColumn

__all__ = ["DEFAULT_FORMAT", "LETTERS", "Format", "compile_format", "json_line", "unescape"]

DEFAULT_FORMAT = "%s\\n"
LETTERS = "skhTtpoSKRQ"
_NULL_SIZE = -1
_NUMBERS = "TpoSK"
_HEX = frozenset("0123456789abcdefABCDEF")
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}

Headers = Iterable[tuple[str, bytes | None]]


class Format:
    """A compiled format: fields, and what stands between and behind them.

    tail: what stands behind the last field of every record. null: what a null key or value is
    shown as. unpack: how keys (k) and values (s) are turned into what is shown.
    """

    def __init__(
        self, pieces: Sequence[bytes | str], null: bytes, unpack: Mapping[str, Unpack]
    ) -> None:
        fields = [piece for piece in pieces if isinstance(piece, str)]
        behind = pieces[-1] if pieces and isinstance(pieces[-1], bytes) else b""
        body = pieces[:-1] if behind else pieces
        self.tail = behind if isinstance(behind, bytes) else b""
        self._null = null
        self._unpack = unpack
        self._fields = fields
        self._template = b"".join(map(_slot, body))
        self._bare = list(body) in (["s"], ["k"])

    def __call__(self, record: Record) -> bytes:
        """One record, with its tail."""
        cells = tuple(
            _of_record(letter, record, self._null, self._unpack) for letter in self._fields
        )
        return self._template % cells + self.tail

    def lines(self, columns: Columns) -> list[bytes]:
        """Each record of a batch, without its tail."""
        if not self._fields:
            return [self._template % ()] * len(columns)
        cells = [
            _of_columns(letter, columns, self._null, self._unpack) for letter in self._fields
        ]
        if self._bare:
            return cells[0]
        return list(map(self._template.__mod__, zip(*cells, strict=True)))


def compile_format(
    text: str, *, null: bytes = b"", unpack: Mapping[str, Unpack] | None = None
) -> Format:
    """The format that a text describes. Raises click.BadParameter."""
    return Format(pieces_of(text, LETTERS), null, unpack or {})


def pieces_of(text: str, letters: str) -> list[bytes | str]:
    """Fields as their letters (str), and what stands between them (bytes)."""
    pieces: list[bytes | str] = []
    fixed = ""
    at = 0
    while at < len(text):
        if text[at] == "%" and text[at + 1 : at + 2] != "%":
            letter = text[at + 1 : at + 2]
            if not letter or letter not in letters:
                known = " ".join("%" + name for name in letters)
                raise click.BadParameter(
                    f"%{letter} is no field; use one of {known}", param_hint="--format"
                )
            if fixed:
                pieces.append(unescape(fixed, "--format"))
            fixed = ""
            pieces.append(letter)
            at += 2
        elif text[at] in "%\\":
            fixed += "%" if text[at] == "%" else text[at : at + 2]
            at += 2
        else:
            fixed += text[at]
            at += 1
    if fixed:
        pieces.append(unescape(fixed, "--format"))
    return pieces


def unescape(text: str, option: str) -> bytes:
    """A text with C's escapes as bytes."""
    out = bytearray()
    at = 0
    while at < len(text):
        if text[at] != "\\":
            out += text[at].encode("utf-8", "surrogateescape")
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


def _slot(piece: bytes | str) -> bytes:
    if isinstance(piece, bytes):
        return piece.replace(b"%", b"%%")
    return b"%d" if piece in _NUMBERS else b"%b"


# ---- fields


def _size(data: bytes | None) -> int:
    return _NULL_SIZE if data is None else len(data)


def _headers(headers: Headers) -> bytes:
    """As kcat: a null value is NULL, whatever nulls of keys and values are."""
    return b",".join(
        name.encode("utf-8", "surrogateescape") + b"=" + (b"NULL" if value is None else value)
        for name, value in headers
    )


def _shown(data: bytes | None, null: bytes, unpack: Unpack | None) -> bytes:
    if data is None:
        return null
    return data if unpack is None else unpack(data)


def _of_record(letter: str, record: Record, null: bytes, unpack: Mapping[str, Unpack]) -> Any:
    table: dict[str, Callable[[], Any]] = {
        "s": lambda: _shown(record.value, null, unpack.get("s")),
        "k": lambda: _shown(record.key, null, unpack.get("k")),
        "h": lambda: _headers(record.headers),
        "T": lambda: record.timestamp,
        "t": record.topic.encode,
        "p": lambda: record.partition,
        "o": lambda: record.offset,
        "S": lambda: _size(record.value),
        "K": lambda: _size(record.key),
        "R": lambda: struct.pack(">i", _size(record.value)),
        "Q": lambda: struct.pack(">i", _size(record.key)),
    }
    return table[letter]()


def _of_columns(
    letter: str, columns: Columns, null: bytes, unpack: Mapping[str, Unpack]
) -> list[Any]:
    table: dict[str, Callable[[], list[Any]]] = {
        "s": lambda: _cells(columns.values, null, unpack.get("s")),
        "k": lambda: _cells(columns.keys, null, unpack.get("k")),
        "h": lambda: list(map(_headers, cast("Iterable[Headers]", columns.headers))),
        "T": columns.timestamps.tolist,
        "t": lambda: _topics(columns),
        "p": columns.partitions.tolist,
        "o": columns.offsets.tolist,
        "S": lambda: _sizes(columns.values),
        "K": lambda: _sizes(columns.keys),
        "R": lambda: list(map(struct.Struct(">i").pack, _sizes(columns.values))),
        "Q": lambda: list(map(struct.Struct(">i").pack, _sizes(columns.keys))),
    }
    return table[letter]()


def _cells(column: BinaryColumn, null: bytes, unpack: Unpack | None) -> list[bytes]:
    if unpack is not None:
        return [_shown(cell, null, unpack) for cell in cast("Iterable[bytes | None]", column)]
    if column.null_count == len(column):
        return [null] * len(column)
    cells = list(cast("Iterable[bytes | None]", column))
    if column.null_count:
        return [null if cell is None else cell for cell in cells]
    return cast("list[bytes]", cells)


def _sizes(column: BinaryColumn) -> list[int]:
    sizes: list[int] = column.lengths.tolist()
    if column.null_count:
        return [_NULL_SIZE if column[at] is None else size for at, size in enumerate(sizes)]
    return sizes


def _topics(columns: Columns) -> list[bytes]:
    names = [name.encode() for name in columns.topics]
    if len(names) == 1:
        return names * len(columns)
    return [names[index] for index in columns.topic_indexes.tolist()]


# ---- JSON

_quoted = json.encoder.encode_basestring


def json_line(
    record: Record, broker: int | None = None, unpack: Mapping[str, Unpack] | None = None
) -> bytes:
    """A record as kcat's -J envelope, in UTF-8 without a line's end.

    Bytes that are no UTF-8 become escapes \\udcXX; `kbroker produce -J` makes bytes of them again.
    broker: the node that it was read from. unpack: as Format's.
    """
    headers = ""
    unpack = unpack or {}
    if record.headers:
        parts = [part for name, value in record.headers for part in (_quoted(name), _text(value))]
        headers = f'"headers":[{",".join(parts)}],'
    text = (
        f'{{"topic":{_quoted(record.topic)},"partition":{record.partition},'
        f'"offset":{record.offset},"tstype":"{_TIME_TYPES[record.timestamp_type]}",'
        f'"ts":{record.timestamp},"broker":{"null" if broker is None else broker},{headers}'
        f'"key":{_text(record.key, unpack.get("k"))},'
        f'"payload":{_text(record.value, unpack.get("s"))}}}'
    )
    return text.encode("utf-8", "backslashreplace")


_TIME_TYPES = ("create", "logappend")  # by CREATE_TIME, LOG_APPEND_TIME


def _text(data: bytes | None, unpack: Unpack | None = None) -> str:
    if data is None:
        return "null"
    shown = data if unpack is None else unpack(data)
    return _quoted(shown.decode("utf-8", "surrogateescape"))
