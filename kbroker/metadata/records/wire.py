"""What encoders and decoders of records share: bounds, codes of fixed widths, varints."""

from __future__ import annotations

from .schema import Field, Schema

UUID_BYTES = 16
FIXED = {
    "bool": "?",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint16": "H",
    "uint32": "I",
    "uuid": "16s",
}
"""`struct` code of each type of fixed width."""


class RecordError(Exception):
    """Bytes that are no record of their version, or a record that its version cannot carry."""


def check_version(schema: Schema, version: int) -> None:
    """Refuse a version that the schema has not."""
    if not schema.oldest <= version <= schema.latest:
        raise RecordError(
            f"{schema.name} has versions {schema.oldest} to {schema.latest}, not {version}"
        )


def carries(field: Field, version: int) -> bool:
    """True where records of `version` have `field`."""
    return field.since <= version <= field.until


def is_tagged(field: Field, version: int) -> bool:
    """True where records of `version` carry `field` behind the others, under its tag."""
    return version >= field.tagged and carries(field, version)


def read_uvarint(data: bytes, position: int) -> tuple[int, int]:
    """An unsigned varint of at most 32 bits."""
    byte = data[position]
    if byte < 0x80:
        return byte, position + 1
    value = byte & 0x7F
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + 1
    raise RecordError("a varint is longer than 32 bits")


def write_uvarint(out: bytearray, value: int) -> None:
    """Append an unsigned varint."""
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
