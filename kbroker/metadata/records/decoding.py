"""Decoders of records, compiled from their schemas; see `codec` for the format."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from kbroker.limits import ARRAY_ELEMENTS_MAX_COUNT, TAGGED_FIELDS_MAX_COUNT

from .schema import Field, Record, Schema
from .wire import FIXED, RecordError, carries, is_tagged, read_uvarint

Read = Callable[[bytes, int], tuple[Any, int]]
"""(buffer, position) -> (value, position behind it)."""
Step = Callable[[bytes, int, list[Any]], int]
"""(buffer, position, the record's values) -> position behind what it put among them."""


_DECODERS: dict[tuple[type[Record], int], Read] = {}


def decoder(cls: type[Record], version: int) -> Read:
    """Reads one struct; short input raises IndexError or struct.error, `decode` names it."""
    found = _DECODERS.get((cls, version))
    if found is None:
        found = _DECODERS[cls, version] = _compile(cls, version)
    return found


def _compile(cls: type[Record], version: int) -> Read:
    schema = cls.SCHEMA
    flexible = version >= schema.flexible
    template = [field.default for field in schema.fields]
    steps = _read_steps(schema, version, flexible)
    tags = {
        field.tag: _read_step(index, read_value(field, version, flexible))
        for index, field in enumerate(schema.fields)
        if flexible and is_tagged(field, version)
    }

    def read(data: bytes, position: int) -> tuple[Record, int]:
        values = template.copy()
        for step in steps:
            position = step(data, position, values)
        if not flexible:
            return cls(*values), position
        if not data[position]:
            return cls(*values), position + 1
        unknown, position = _read_tags(tags, data, position, values)
        record = cls(*values)
        record.unknown_tags = unknown
        return record, position

    return read


def _read_steps(schema: Schema, version: int, flexible: bool) -> list[Step]:
    """The fields in place; neighbours of fixed width in one step."""
    steps: list[Step] = []
    first, codes = 0, ""
    for index, field in enumerate(schema.fields):
        in_place = carries(field, version) and not is_tagged(field, version)
        fixed = in_place and not field.array and field.type in FIXED
        if codes and not (fixed and first + codes.count(" ") == index):
            steps.append(_read_run(first, codes))
            codes = ""
        if fixed:
            if not codes:
                first = index
            codes += FIXED[field.type] + " "
        elif in_place:
            steps.append(_read_step(index, read_value(field, version, flexible)))
    if codes:
        steps.append(_read_run(first, codes))
    return steps


def _read_run(first: int, codes: str) -> Step:
    packed = struct.Struct(">" + codes)
    unpack, size, behind = packed.unpack_from, packed.size, first + codes.count(" ")

    def step(data: bytes, position: int, values: list[Any]) -> int:
        values[first:behind] = unpack(data, position)
        return position + size

    return step


def _read_step(index: int, read: Read) -> Step:
    def step(data: bytes, position: int, values: list[Any]) -> int:
        values[index], position = read(data, position)
        return position

    return step


def _read_tags(
    tags: dict[int, Step], data: bytes, position: int, values: list[Any]
) -> tuple[tuple[tuple[int, bytes], ...], int]:
    count, position = read_uvarint(data, position)
    if count > TAGGED_FIELDS_MAX_COUNT:
        raise RecordError(f"{count} tagged fields, at most {TAGGED_FIELDS_MAX_COUNT}")
    unknown = []
    before = -1
    for _ in range(count):
        tag, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        end = position + size
        if tag <= before or end > len(data):
            raise RecordError(f"tagged field {tag} is out of order or runs over the end")
        before = tag
        if tag not in tags:
            unknown.append((tag, data[position:end]))
        elif tags[tag](data, position, values) != end:
            raise RecordError(f"tagged field {tag} is not {size} bytes long")
        position = end
    return tuple(unknown), position


def read_value(field: Field, version: int, flexible: bool) -> Read:
    """Reads one field's value."""
    nullable = version >= field.nullable
    if not field.array:
        return _read_one(field, version, flexible, nullable)
    count = _read_length("i", flexible, nullable, field.name)
    if field.type in FIXED:
        return _read_fixed_array(FIXED[field.type], count)
    element = _read_one(field, version, flexible, False)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        size, position = count(data, position)
        if size < 0:
            return None, position
        if size > min(ARRAY_ELEMENTS_MAX_COUNT, len(data) - position):
            raise RecordError(f"an array of {size} elements in {len(data) - position} bytes")
        values = []
        for _ in range(size):
            value, position = element(data, position)
            values.append(value)
        return values, position

    return read


def _read_one(field: Field, version: int, flexible: bool, nullable: bool) -> Read:
    if field.type == "string":
        return _read_string(_read_length("h", flexible, nullable, field.name))
    if field.type == "bytes":
        return _read_bytes(_read_length("i", flexible, nullable, field.name))
    if field.of is not None:
        inner = decoder(field.of, version)
        return _read_nullable(inner, is_tagged(field, version)) if nullable else inner
    packed = struct.Struct(">" + FIXED[field.type])
    unpack, size = packed.unpack_from, packed.size

    def read(data: bytes, position: int) -> tuple[Any, int]:
        return unpack(data, position)[0], position + size

    return read


def _read_length(
    code: str, flexible: bool, nullable: bool, name: str
) -> Callable[[bytes, int], tuple[int, int]]:
    """A length or count, -1 for null."""
    packed = struct.Struct(">" + code)
    unpack, size = packed.unpack_from, packed.size
    least = -1 if nullable else 0

    def compact(data: bytes, position: int) -> tuple[int, int]:
        length = data[position]
        if length < 0x80:
            position += 1
        else:
            length, position = read_uvarint(data, position)
        if length <= least:
            raise RecordError(f"{name} may not be null")
        return length - 1, position

    def plain(data: bytes, position: int) -> tuple[int, int]:
        length = unpack(data, position)[0]
        if length < least:
            raise RecordError(f"{name} has length {length}")
        return length, position + size

    return compact if flexible else plain


def _read_string(length: Callable[[bytes, int], tuple[int, int]]) -> Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        size, position = length(data, position)
        if size < 0:
            return None, position
        end = position + size
        if end > len(data):
            raise RecordError(f"a string of {size} bytes in {len(data) - position}")
        return data[position:end].decode(), end

    return read


def _read_bytes(length: Callable[[bytes, int], tuple[int, int]]) -> Read:
    def read(data: bytes, position: int) -> tuple[Any, int]:
        size, position = length(data, position)
        if size < 0:
            return None, position
        end = position + size
        if end > len(data):
            raise RecordError(f"{size} bytes in {len(data) - position}")
        return data[position:end], end

    return read


def _read_nullable(inner: Read, tagged: bool) -> Read:
    """A struct behind its mark: int8 -1 for null in place, varint 0 as a tagged field."""

    def read(data: bytes, position: int) -> tuple[Any, int]:
        mark = data[position]
        if (mark == 0) if tagged else (mark >= 0x80):
            return None, position + 1
        return inner(data, position + 1)

    return read


def _read_fixed_array(code: str, length: Callable[[bytes, int], tuple[int, int]]) -> Read:
    width = struct.calcsize(">" + code)
    ones = struct.Struct(">" + code)

    def read(data: bytes, position: int) -> tuple[Any, int]:
        size, position = length(data, position)
        if size < 1:
            return ([] if size == 0 else None), position
        if size == 1:
            return list(ones.unpack_from(data, position)), position + width
        if size > min(ARRAY_ELEMENTS_MAX_COUNT, (len(data) - position) // width):
            raise RecordError(f"an array of {size} elements in {len(data) - position} bytes")
        return list(struct.unpack_from(">" + code * size, data, position)), position + width * size

    return read
