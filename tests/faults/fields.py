"""Requests with one length or count that lies, for every field of every request there is.

From kio's schemas, which are generated from Apache Kafka's: a request in which every array has one
element is written as pieces; then each piece that says how much follows is replaced in turn.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from typing import Any

from kio.index import load_request_schema

from tests.support.messages import Field, fields_of

#: What a piece says: nothing that can be a lie, or a length or count of this form.
PLAIN, INT16, INT32, VARINT = range(4)
Piece = tuple[int, bytes]

FIXED_BYTES = {
    "int8": 1, "int16": 2, "int32": 4, "int64": 8, "uint16": 2, "float64": 8, "bool": 1,
    "error_code": 2, "timedelta_i32": 4, "timedelta_i64": 8, "datetime_i64": 8,
}  # fmt: skip

LIES: dict[int, tuple[bytes, ...]] = {
    INT16: tuple(struct.pack(">h", n) for n in (-1, -2, 2**15 - 1, -(2**15), 1000)),
    INT32: tuple(struct.pack(">i", n) for n in (-1, -2, 2**31 - 1, -(2**31), 1 << 24, 100_000)),
    VARINT: (b"\0", b"\xff\xff\xff\xff\x0f", b"\xff" * 9 + b"\x01", b"\xff" * 20,
             b"\x80\x80\x80\x80\x08", b"\x81\x80\x40", b"\x80" * 5),
}  # fmt: skip


def pieces_of(api: int, version: int) -> list[Piece]:
    """One request body; joined, it is right."""
    pieces: list[Piece] = []
    _struct(pieces, load_request_schema(api, version))
    return pieces


def _struct(pieces: list[Piece], schema: type) -> None:
    flexible = bool(schema.__flexible__)  # type: ignore[attr-defined]
    for field in fields_of(schema):
        if field.tag is None:
            _field(pieces, field, flexible)
    if flexible:
        # One tagged field that nobody knows: its tag, its size, its bytes.
        pieces.append((VARINT, b"\x01"))
        pieces.append((VARINT, b"\xe7\x07"))
        pieces.append((VARINT, b"\x02"))
        pieces.append((PLAIN, b"ab"))


def _field(pieces: list[Piece], field: Field, flexible: bool) -> None:
    if field.array:
        pieces.append((VARINT, b"\x02") if flexible else (INT32, struct.pack(">i", 1)))
    _value(pieces, field, flexible)


def _value(pieces: list[Piece], field: Field, flexible: bool) -> None:
    if field.struct is not None:
        if field.nullable and not field.array:
            pieces.append((PLAIN, b"\x01"))
        _struct(pieces, field.struct)
    elif field.kind in FIXED_BYTES:
        pieces.append((PLAIN, bytes(FIXED_BYTES[field.kind])))
    elif field.kind == "uuid":
        pieces.append((PLAIN, uuid.UUID(int=7).bytes))
    elif flexible:
        pieces.append((VARINT, b"\x03"))
        pieces.append((PLAIN, b"no"))
    else:
        wide = field.kind in ("bytes", "records")
        pieces.append((INT32, struct.pack(">i", 2)) if wide else (INT16, struct.pack(">h", 2)))
        pieces.append((PLAIN, b"no"))


def lies_about(pieces: list[Piece]) -> Iterator[bytes]:
    """The request with each length and count replaced by each lie, in turn."""
    for at, (form, _) in enumerate(pieces):
        for lie in LIES.get(form, ()):
            before = b"".join(data for _, data in pieces[:at])
            yield before + lie + b"".join(data for _, data in pieces[at + 1 :])


def joined(pieces: list[Piece]) -> bytes:
    return b"".join(data for _, data in pieces)


def header(api: int, version: int, *, flexible: bool, client_id: bytes = b"\xff\xff") -> bytes:
    """Correlation id 7, no client id."""
    return struct.pack(">hhi", api, version, 7) + client_id + (b"\0" if flexible else b"")


Versions = dict[int, tuple[int, int]]


def versions_of(answer: dict[str, Any]) -> Versions:
    """Key to lowest and highest version, as ApiVersions tells."""
    return {
        one["api_key"]: (one["min_version"], one["max_version"]) for one in answer["api_keys"]
    }
