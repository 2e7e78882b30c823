"""Kafka messages as plain dicts, for every API and version.

A small codec of the tests' own, driven by the field tables of kio's generated schemas (names,
types, versions, defaults, tags). It differs from kio's codec in two ways that tests need: values
are plain (ints for durations and error codes, lists, dicts), so that whole answers compare and
print well, and it encodes nonsense without complaint (a negative timeout, an unknown enum), so
that a broker can be asked the wrong thing.

Field names are kio's (snake case, without unit suffixes). A field left out takes the schema's
default, or the zero of its type (empty string, empty list, null where the schema allows it).
"""

from __future__ import annotations

import dataclasses
import struct
import types
import typing
import uuid
from collections.abc import Iterator
from functools import cache
from typing import Any

from kio.index import load_request_schema, load_response_schema

ZERO_UUID = uuid.UUID(int=0)

_FIXED = {
    "int8": ">b", "int16": ">h", "int32": ">i", "int64": ">q", "uint16": ">H", "float64": ">d",
    "bool": ">?", "error_code": ">h", "timedelta_i32": ">i", "timedelta_i64": ">q",
    "datetime_i64": ">q",
}  # fmt: skip


class DecodeError(Exception):
    """An answer that does not follow its schema: too short, too long, or a bad length."""


@dataclasses.dataclass(frozen=True)
class Field:
    """One field of a schema, flattened from kio's dataclass field."""

    name: str
    kind: str  # a key of _FIXED, "string", "bytes", "records", "uuid" or "struct"
    struct: type | None
    array: bool
    nullable: bool
    tag: int | None
    default: Any


@cache
def fields_of(schema: type) -> tuple[Field, ...]:
    """The fields of one kio schema class in wire order."""
    hints = typing.get_type_hints(schema)
    return tuple(_field(field, hints[field.name]) for field in dataclasses.fields(schema))


def _field(field: dataclasses.Field[Any], hint: Any) -> Field:
    inner, nullable = _strip_none(hint)
    array = typing.get_origin(inner) is tuple
    if array:
        inner, _ = _strip_none(typing.get_args(inner)[0])
    kind = field.metadata.get("kafka_type", "struct")
    default = field.default
    if default is dataclasses.MISSING:
        default = _zero(kind, array, nullable)
    elif dataclasses.is_dataclass(default):
        default = {}
    return Field(
        name=field.name, kind=kind, struct=inner if kind == "struct" else None, array=array,
        nullable=nullable and kind != "uuid", tag=field.metadata.get("tag"),
        default=_plain(default, kind),
    )  # fmt: skip


def _strip_none(hint: Any) -> tuple[Any, bool]:
    if isinstance(hint, types.UnionType) or typing.get_origin(hint) is typing.Union:
        rest = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        return rest[0], True
    return hint, False


def _zero(kind: str, array: bool, nullable: bool) -> Any:
    if array:
        return ()
    if kind == "struct":
        return None if nullable else {}
    if kind == "string":
        return ""
    if kind in ("bytes", "records"):
        return None if nullable else b""
    return ZERO_UUID if kind == "uuid" else 0


def _plain(value: Any, kind: str) -> Any:
    if kind == "uuid" and value is None:
        return ZERO_UUID
    if kind in ("timedelta_i32", "timedelta_i64") and not isinstance(value, int):
        return round(value.total_seconds() * 1000)
    if kind == "datetime_i64" and value is None:
        return -1
    return value


# --- encode -----------------------------------------------------------------------------------


def encode(schema: type, value: dict[str, Any]) -> bytes:
    """The bytes of one message body."""
    out = bytearray()
    _write_struct(out, schema, value)
    return bytes(out)


def _write_struct(out: bytearray, schema: type, value: dict[str, Any]) -> None:
    flexible = schema.__flexible__  # type: ignore[attr-defined]
    unknown = set(value) - {field.name for field in fields_of(schema)} - {"_tags"}
    if unknown:
        raise TypeError(f"{schema.__module__} {schema.__name__} has no field {sorted(unknown)}")
    tagged: dict[int, bytes] = dict(value.get("_tags", {}))
    for field in fields_of(schema):
        given = value.get(field.name, field.default)
        if field.tag is None:
            _write_field(out, field, given, flexible)
        elif given != field.default:
            part = bytearray()
            _write_field(part, field, given, flexible)
            tagged[field.tag] = bytes(part)
    if flexible:
        write_uvarint(out, len(tagged))
        for tag, data in sorted(tagged.items()):
            write_uvarint(out, tag)
            write_uvarint(out, len(data))
            out += data


def _write_field(out: bytearray, field: Field, value: Any, flexible: bool) -> None:
    if not field.array:
        _write_value(out, field, value, flexible)
        return
    _write_length(out, None if value is None else len(value), flexible, ">i")
    for item in value or ():
        _write_value(out, field, item, flexible, in_array=True)


def _write_value(
    out: bytearray, field: Field, value: Any, flexible: bool, in_array: bool = False
) -> None:
    if field.kind in _FIXED:
        out += struct.pack(_FIXED[field.kind], value)
    elif field.kind == "uuid":
        out += (value or ZERO_UUID).bytes
    elif field.kind == "struct":
        assert field.struct is not None
        if field.nullable and not field.array:
            out += struct.pack(">b", -1 if value is None else 1)
            if value is None:
                return
        _write_struct(out, field.struct, value)
    else:
        data = value.encode() if isinstance(value, str) else value
        narrow = ">h" if field.kind == "string" else ">i"
        _write_length(out, None if data is None else len(data), flexible, narrow)
        out += data or b""


def _write_length(out: bytearray, length: int | None, flexible: bool, form: str) -> None:
    if flexible:
        write_uvarint(out, 0 if length is None else length + 1)
    else:
        out += struct.pack(form, -1 if length is None else length)


def write_uvarint(out: bytearray, value: int) -> None:
    """Unsigned LEB128 varint."""
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)


# --- decode -----------------------------------------------------------------------------------


class Cursor:
    """Reads forward over one message; every read is checked against the end."""

    def __init__(self, data: bytes, position: int = 0) -> None:
        self.data = data
        self.position = position

    def take(self, size: int) -> bytes:
        if size < 0 or self.position + size > len(self.data):
            raise DecodeError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        part = self.data[self.position : self.position + size]
        self.position += size
        return part

    def fixed(self, form: str) -> Any:
        return struct.unpack(form, self.take(struct.calcsize(form)))[0]

    def uvarint(self) -> int:
        value = shift = 0
        while True:
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
            shift += 7
            if shift > 63:
                raise DecodeError("varint over 10 bytes")


def decode(schema: type, data: bytes) -> dict[str, Any]:
    """One whole message body; bytes left over are an error."""
    cursor = Cursor(data)
    value = _read_struct(cursor, schema)
    if cursor.position != len(data):
        raise DecodeError(f"{len(data) - cursor.position} bytes left after {schema.__name__}")
    return value


def _read_struct(cursor: Cursor, schema: type) -> dict[str, Any]:
    flexible = schema.__flexible__  # type: ignore[attr-defined]
    value: dict[str, Any] = {}
    by_tag: dict[int, Field] = {}
    for field in fields_of(schema):
        if field.tag is None:
            value[field.name] = _read_field(cursor, field, flexible)
        else:
            by_tag[field.tag] = field
            value[field.name] = _default(field)
    for _ in range(cursor.uvarint() if flexible else 0):
        tag, size = cursor.uvarint(), cursor.uvarint()
        if tag in by_tag:
            inner = Cursor(cursor.take(size))
            value[by_tag[tag].name] = _read_field(inner, by_tag[tag], flexible)
            if inner.position != size:
                raise DecodeError(f"tag {tag} of {schema.__name__}: {size} bytes told, others read")
        else:
            value.setdefault("_tags", {})[tag] = cursor.take(size)
    return value


def defaults(schema: type) -> dict[str, Any]:
    """What a message that leaves everything out says."""
    return {field.name: _default(field) for field in fields_of(schema)}


def _default(field: Field) -> Any:
    if field.array:
        return None if field.default is None else list(field.default)
    return defaults(field.struct) if field.struct and field.default == {} else field.default


def _read_field(cursor: Cursor, field: Field, flexible: bool) -> Any:
    if not field.array:
        return _read_value(cursor, field, flexible)
    length = _read_length(cursor, flexible, ">i")
    return None if length is None else [_read_value(cursor, field, flexible) for _ in range(length)]


def _read_value(cursor: Cursor, field: Field, flexible: bool) -> Any:
    if field.kind in _FIXED:
        return cursor.fixed(_FIXED[field.kind])
    if field.kind == "uuid":
        return uuid.UUID(bytes=cursor.take(16))
    if field.kind == "struct":
        assert field.struct is not None
        if field.nullable and not field.array and cursor.fixed(">b") < 0:
            return None
        return _read_struct(cursor, field.struct)
    length = _read_length(cursor, flexible, ">h" if field.kind == "string" else ">i")
    if length is None:
        return None
    data = cursor.take(length)
    return data.decode() if field.kind == "string" else data


def _read_length(cursor: Cursor, flexible: bool, form: str) -> int | None:
    length = cursor.uvarint() - 1 if flexible else cursor.fixed(form)
    if length < -1:
        raise DecodeError(f"length {length}")
    return None if length == -1 else length


# --- whole frames -----------------------------------------------------------------------------


def error_codes(answer: Any) -> Iterator[int]:
    """All error codes of an answer as `decode` gives it, however deep they are."""
    if isinstance(answer, dict):
        for name, one in answer.items():
            if name.endswith("error_code"):
                yield one
            yield from error_codes(one)
    elif isinstance(answer, list | tuple):
        for one in answer:
            yield from error_codes(one)


def request_frame(
    api: int, version: int, body: bytes, correlation_id: int, client_id: str | None = "testbed"
) -> bytes:
    """Length prefix, request header v1 or v2 as the version asks, and the body."""
    schema = load_request_schema(api, version)
    head = bytearray(struct.pack(">hhi", api, version, correlation_id))
    client = None if client_id is None else client_id.encode()
    head += struct.pack(">h", -1 if client is None else len(client)) + (client or b"")
    if schema.__header_schema__.__version__ >= 2:
        head.append(0)
    return struct.pack(">i", len(head) + len(body)) + bytes(head) + body


def response_body(api: int, version: int, payload: bytes) -> tuple[int, bytes]:
    """Splits a response (without its length prefix) into correlation id and body."""
    schema = load_response_schema(api, version)
    cursor = Cursor(payload)
    correlation_id = cursor.fixed(">i")
    if schema.__header_schema__.__version__ >= 1:
        for _ in range(cursor.uvarint()):
            cursor.uvarint()
            cursor.take(cursor.uvarint())
    return correlation_id, payload[cursor.position :]
