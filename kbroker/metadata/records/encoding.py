"""Encoders of records, compiled from their schemas; see `codec` for the format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from operator import attrgetter
from typing import Any

from .schema import EMPTY, Field, Record, Schema
from .wire import FIXED, UUID_BYTES, RecordError, carries, is_tagged, write_uvarint

Write = Callable[[bytearray, Any], None]
"""Appends a value."""
_ONE_BYTE_MAX = 0x7F  # lengths below it are a varint of one byte

_ENCODERS: dict[tuple[type[Record], int], Write] = {}


def encoder(cls: type[Record], version: int) -> Write:
    """Appends one struct."""
    found = _ENCODERS.get((cls, version))
    if found is None:
        found = _ENCODERS[cls, version] = _compile(cls, version)
    return found


def _compile(cls: type[Record], version: int) -> Write:
    schema = cls.SCHEMA
    flexible = version >= schema.flexible
    steps = _write_steps(schema, version, flexible)
    tagged = sorted(
        (field.tag, attrgetter(field.name), _written_by_default(field),
         write_value(field, version, flexible))
        for field in schema.fields
        if flexible and is_tagged(field, version)
    )  # fmt: skip
    # Most records have defaults in all of these fields: one comparison finds that.
    refused = [field for field in schema.fields
               if not carries(field, version) and not field.ignorable]  # fmt: skip
    has_refused = _differs([(field.name, _written_by_default(field)) for field in refused])
    has_tagged = _differs(
        [(field.name, _written_by_default(field)) for field in schema.fields
         if flexible and is_tagged(field, version)] + [("unknown_tags", ())]
    )  # fmt: skip

    def write(out: bytearray, record: Any) -> None:
        if refused and has_refused(record):
            _refuse(schema, version, refused, record)
        for step in steps:
            step(out, record)
        if flexible:
            if has_tagged(record):
                _write_tags(out, tagged, record)
            else:
                out.append(0)

    return write


def _differs(defaults: list[tuple[str, Any]]) -> Callable[[Any], bool]:
    """Tells whether a record has another value than the default in any of these fields."""
    if len(defaults) == 1:
        ((name, default),) = defaults
        get_one = attrgetter(name)
        return lambda record: bool(get_one(record) != default)
    if not defaults:
        return lambda _: False
    get = attrgetter(*(name for name, _ in defaults))
    values = tuple(default for _, default in defaults)
    return lambda record: bool(get(record) != values)


def _refuse(schema: Schema, version: int, fields: list[Field], record: Any) -> None:
    for field in fields:
        value = getattr(record, field.name)
        if value != _written_by_default(field):
            raise RecordError(
                f"{schema.name} version {version} cannot carry {field.name}={value!r}"
            )


def _written_by_default(field: Field) -> Any:
    """The value that a tagged field need not say, and a version without the field can drop."""
    if field.default is not EMPTY:
        return field.default
    return [] if field.array or field.of is None else field.of()


def _write_tags(out: bytearray, tagged: list[Any], record: Record) -> None:
    said = list(record.unknown_tags)
    for tag, get, default, write in tagged:
        value = get(record)
        if value != default:
            body = bytearray()
            write(body, value)
            said.append((tag, bytes(body)))
    said.sort()
    write_uvarint(out, len(said))
    for tag, data in said:
        write_uvarint(out, tag)
        write_uvarint(out, len(data))
        out += data


def _write_steps(schema: Schema, version: int, flexible: bool) -> list[Write]:
    steps: list[Write] = []
    run: list[Field] = []
    for field in schema.fields:
        if not carries(field, version) or is_tagged(field, version):
            continue
        if not field.array and field.type in FIXED:
            run.append(field)
            continue
        if run:
            steps.append(_write_run(run))
            run = []
        steps.append(_write_step(attrgetter(field.name), write_value(field, version, flexible)))
    if run:
        steps.append(_write_run(run))
    return steps


def _write_run(fields: list[Field]) -> Write:
    pack = struct.Struct(">" + "".join(FIXED[field.type] for field in fields)).pack
    get = attrgetter(*(field.name for field in fields))
    uuids = [attrgetter(field.name) for field in fields if field.type == "uuid"]
    single = len(fields) == 1

    def write(out: bytearray, record: Any) -> None:
        for uuid in uuids:
            _check_uuid(uuid(record))
        out += pack(get(record)) if single else pack(*get(record))

    return write


def _check_uuid(value: bytes) -> None:
    if len(value) != UUID_BYTES:  # struct would cut or fill it without a word
        raise RecordError(f"a uuid of {len(value)} bytes")


def _write_step(get: Callable[[Any], Any], write_one: Write) -> Write:
    def write(out: bytearray, record: Any) -> None:
        write_one(out, get(record))

    return write


def write_value(field: Field, version: int, flexible: bool) -> Write:
    """Appends one field's value."""
    nullable = version >= field.nullable
    if not field.array:
        return _write_one(field, version, flexible, nullable)
    length = _write_length("i", flexible, nullable, field.name)
    if field.type in FIXED and field.type != "uuid":
        return _write_numbers(length, FIXED[field.type])
    element = _write_one(field, version, flexible, False)

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, -1)
            return
        length(out, len(value))
        for one in value:
            element(out, one)

    return write


def _write_numbers(length: Callable[[bytearray, int], None], code: str) -> Write:
    pack_one = struct.Struct(">" + code).pack

    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, -1)
            return
        count = len(value)
        length(out, count)
        if count == 1:
            out += pack_one(value[0])
        elif count:
            out += struct.pack(f">{count}{code}", *value)

    return write


def _write_one(field: Field, version: int, flexible: bool, nullable: bool) -> Write:
    if field.type in ("string", "bytes"):
        code = "h" if field.type == "string" else "i"
        return _write_sized(
            _write_length(code, flexible, nullable, field.name), field.type == "string"
        )
    if field.of is not None:
        inner = encoder(field.of, version)
        return _write_nullable(inner, is_tagged(field, version)) if nullable else inner
    pack = struct.Struct(">" + FIXED[field.type]).pack
    uuid = field.type == "uuid"

    def write(out: bytearray, value: Any) -> None:
        if uuid:
            _check_uuid(value)
        out += pack(value)

    return write


def _write_length(
    code: str, flexible: bool, nullable: bool, name: str
) -> Callable[[bytearray, int], None]:
    pack = struct.Struct(">" + code).pack

    def write(out: bytearray, length: int) -> None:
        if length < 0 and not nullable:
            raise RecordError(f"{name} may not be null")
        if not flexible:
            out += pack(length)
        elif length < _ONE_BYTE_MAX:
            out.append(length + 1)
        else:
            write_uvarint(out, length + 1)

    return write


def _write_sized(length: Callable[[bytearray, int], None], text: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            length(out, -1)
            return
        data = value.encode() if text else value
        length(out, len(data))
        out += data

    return write


def _write_nullable(inner: Write, tagged: bool) -> Write:
    def write(out: bytearray, value: Any) -> None:
        if value is None:
            out.append(0 if tagged else 0xFF)
        else:
            out.append(1)
            inner(out, value)

    return write
