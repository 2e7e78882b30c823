"""Encoders and decoders of records, compiled from their schemas when first asked for.

A record in its version is, field by field in the schema's order (all integers big endian):

    int8..int64, uint16, uint32, bool, float64, uuid   fixed width
    string, bytes       length, then the bytes; length int16 (string) or int32 (bytes), -1 for
                        null; in a flexible version an unsigned varint of length + 1, 0 for null
    []type              count int32, or the same varint of count + 1, then the elements
    a nullable struct   int8 1, then the struct, or int8 -1 for null; as a tagged field varint 1,
                        then the struct, or varint 0
    tagged fields       (flexible versions, at the end of every struct) unsigned varint count,
                        then for each: varint tag, varint size, that many bytes

Fields of fixed width that follow each other are packed and unpacked by one `struct.Struct`,
which is what makes the load of an image of 10,000 topics quick. Free of state but for the
caches of compiled codecs.
"""

from __future__ import annotations

import struct
from typing import TypeVar, cast

from .decoding import decoder
from .encoding import encoder
from .schema import Record
from .wire import RecordError, check_version

__all__ = ["RecordError", "decode", "decode_from", "encode", "encode_onto"]

R = TypeVar("R", bound=Record)


def decode(cls: type[R], version: int, data: bytes) -> R:
    """The record of `cls` that is exactly `data`, in `version`."""
    record, position = decode_from(cls, version, data, 0)
    if position != len(data):
        raise RecordError(
            f"{cls.__name__} version {version}: {len(data) - position} bytes left over"
        )
    return record


def decode_from(cls: type[R], version: int, data: bytes, position: int) -> tuple[R, int]:
    """The record of `cls` at `position` of `data` and the position behind it."""
    check_version(cls.SCHEMA, version)
    try:
        return cast(tuple[R, int], decoder(cls, version)(data, position))
    except (struct.error, IndexError) as error:
        raise RecordError(f"{cls.__name__} version {version}: the bytes end too early") from error
    except UnicodeDecodeError as error:
        raise RecordError(f"{cls.__name__} version {version}: a string is not UTF-8") from error


def encode(record: Record, version: int) -> bytes:
    """The bytes of `record` in `version`."""
    out = bytearray()
    encode_onto(out, record, version)
    return bytes(out)


def encode_onto(out: bytearray, record: Record, version: int) -> None:
    """Append `record` in `version` to `out`."""
    check_version(record.SCHEMA, version)
    try:
        encoder(type(record), version)(out, record)
    except (struct.error, TypeError, AttributeError) as error:
        raise RecordError(f"{record!r} does not fit version {version}: {error}") from error
