"""Requests from bytes, as kio's entities, and answers for the client, read as carefully.

kio's native reader reads most of them. It takes memory for as many elements as an array says it
has before it reads them, and where there is no such memory it aborts the process: a Metadata of 16
bytes would be the end of the broker. So it gets only bodies in which no count can be large:
flexible ones without a varint of four bytes, and no longer than a string may be (a compact one
could be longer). All others are read by the tolerant reader of this module, along the same schemas,
which checks every count before its elements are read; and so are bodies with a tagged field that
this version's schema does not know, which a broker must skip (KIP-482) and kio's reader refuses.

Bytes behind the end of a request are passed over, as Apache Kafka does: librdkafka sends some
with Metadata 13.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Callable
from typing import Any, Final

from kbroker.errors import ClientError, ErrorCode
from kbroker.limits import (
    ARRAY_ELEMENTS_MAX_COUNT,
    STRING_LENGTH_MAX_BYTES,
    TAGGED_FIELDS_MAX_COUNT,
)
from kbroker.protocol.api_keys import ApiKey
from kbroker.protocol.schemas import Field, entity_reader, fields_of, request_schema

_FORMATS: Final = {
    "int8": ">b",
    "int16": ">h",
    "int32": ">i",
    "int64": ">q",
    "uint16": ">H",
    "float64": ">d",
    "error_code": ">h",
    "datetime_i64": ">q",  # of answers; kio refuses -1, which brokers send
}
_VARINT_BYTES_MAX: Final = 5
# What begins a varint over 2,097,151, once every byte is told only by its highest bit.
_LONG_VARINT: Final = b"\x80" * 3
_HIGHEST_BITS: Final = bytes(128) + b"\x80" * 128

Reader = Callable[["Cursor"], Any]


class MalformedRequestError(ClientError):
    """Bytes that do not follow the schema of their API and version."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, message)


def decode_request(key: ApiKey, version: int, body: bytes) -> Any:
    """The request in `body` (what follows the header). Raises MalformedRequestError."""
    schema = request_schema(key, version)
    if _fits_kio(schema, body):
        try:
            return entity_reader(schema)(body, 0)[0]
        except KeyError:
            return _read_tolerantly(key, version, body)
        except Exception as error:
            raise MalformedRequestError(f"{key.name} v{version}: {error}") from None
    return _read_tolerantly(key, version, body)


def _fits_kio(schema: Any, body: bytes) -> bool:
    """Whether no array can claim to have many elements, nor a string be too long."""
    return (
        schema.__flexible__
        and len(body) <= STRING_LENGTH_MAX_BYTES
        and _LONG_VARINT not in body.translate(_HIGHEST_BITS)
    )


def _read_tolerantly(key: ApiKey, version: int, body: bytes) -> Any:
    cursor = Cursor(body)
    try:
        return struct_reader(request_schema(key, version))(cursor)
    except (ValueError, OverflowError, struct.error) as error:
        raise MalformedRequestError(f"{key.name} v{version}: {error}") from None


def decode_answer(schema: Any, frame: bytes, position: int = 0) -> tuple[Any, int]:
    """A struct of an answer's frame, and where it ends. Raises ValueError or struct.error.

    Times stay numbers. An element takes a byte at least, which bounds what arrays may claim.
    """
    cursor = Cursor(frame, len(frame), nulls_told=True)
    cursor.position = position
    return struct_reader(schema)(cursor), cursor.position


class Cursor:
    """Reads forward over a body; every read is checked against its end.

    nulls_told: a null array where the schema has none is an error, not None.
    """

    def __init__(
        self,
        data: bytes,
        elements_max: int = ARRAY_ELEMENTS_MAX_COUNT,
        *,
        nulls_told: bool = False,
    ) -> None:
        self.nulls_told = nulls_told
        self.data = data
        self.position = 0
        self._elements_left = elements_max

    def take(self, size: int) -> bytes:
        """The next `size` bytes."""
        end = self.position + size
        if size < 0 or end > len(self.data):
            raise ValueError(f"{size} bytes wanted at {self.position} of {len(self.data)}")
        part = self.data[self.position : end]
        self.position = end
        return part

    def uvarint(self) -> int:
        """Unsigned LEB128 of 32 bits."""
        value = 0
        for index in range(_VARINT_BYTES_MAX):
            byte = self.take(1)[0]
            value |= (byte & 0x7F) << (7 * index)
            if byte < 0x80:
                return value
        raise ValueError("varint is too long")

    def count(self, flexible: bool) -> int | None:
        """The number of elements of an array, None for a null one. A request has so many in all of
        its arrays together: each costs the control thread microseconds, however few its bytes."""
        count = self.uvarint() - 1 if flexible else int(struct.unpack(">i", self.take(4))[0])
        if count == -1:
            return None
        if count < -1 or count > self._elements_left:
            raise ValueError(f"array of {count} elements")
        self._elements_left -= count
        return count

    def length(self, flexible: bool, is_string: bool) -> int | None:
        """The length of a string or of bytes, None for null."""
        if flexible:
            length = self.uvarint() - 1
        elif is_string:
            length = int(struct.unpack(">h", self.take(2))[0])
        else:
            length = int(struct.unpack(">i", self.take(4))[0])
        if length < -1:
            raise ValueError(f"length {length}")
        return None if length == -1 else length


@functools.cache
def struct_reader(schema: Any) -> Reader:
    """The reader of one struct."""
    flexible: bool = schema.__flexible__
    fields = fields_of(schema)
    plain = [(f.name, _field_reader(f, flexible)) for f in fields if f.tag is None]
    tagged = {f.tag: (f.name, _field_reader(f, flexible)) for f in fields if f.tag is not None}

    def read(cursor: Cursor) -> Any:
        values = {name: read_field(cursor) for name, read_field in plain}
        for _ in range(_tag_count(cursor) if flexible else 0):
            tag, size = cursor.uvarint(), cursor.uvarint()
            if tag not in tagged:
                cursor.take(size)
                continue
            end = cursor.position + size
            name, read_field = tagged[tag]
            values[name] = read_field(cursor)
            if cursor.position != end:
                raise ValueError(f"tag {tag} does not fill its {size} bytes")
        return schema(**values)

    return read


def _tag_count(cursor: Cursor) -> int:
    count = cursor.uvarint()
    if count > TAGGED_FIELDS_MAX_COUNT:
        raise ValueError(f"{count} tagged fields")
    return count


def _field_reader(field: Field, flexible: bool) -> Reader:
    read_value = _value_reader(field, flexible)
    if not field.is_array:
        return read_value

    if field.kind in _FORMATS:
        number = struct.Struct(_FORMATS[field.kind])

        def read_numbers(cursor: Cursor) -> Any:
            count = cursor.count(flexible)
            if count is None:
                return _null(cursor, field)
            data = cursor.take(count * number.size)
            return tuple([value for value, in number.iter_unpack(data)])

        return read_numbers

    def read_array(cursor: Cursor) -> Any:
        count = cursor.count(flexible)
        if count is None:
            return _null(cursor, field)
        return tuple([read_value(cursor) for _ in range(count)])

    return read_array


def _null(cursor: Cursor, field: Field) -> None:
    if cursor.nulls_told and not field.is_nullable:
        raise ValueError(f"{field.name} is null")


def _value_reader(field: Field, flexible: bool) -> Reader:
    if field.kind in _FORMATS:
        form = struct.Struct(_FORMATS[field.kind])
        return lambda cursor: form.unpack(cursor.take(form.size))[0]
    if field.kind == "bool":
        return lambda cursor: cursor.take(1) != b"\0"
    if field.kind in ("timedelta_i32", "timedelta_i64"):
        return _duration_reader(">i" if field.kind == "timedelta_i32" else ">q")
    if field.kind == "uuid":
        return _read_uuid
    if field.kind == "struct":
        return _nullable(field)
    return _text_reader(field, flexible)


def _duration_reader(form: str) -> Reader:
    """A duration in milliseconds; one that no timedelta holds (2.7 million years) stays a number,
    as the retention time of an OffsetCommit may be any."""
    from datetime import timedelta  # noqa: PLC0415  as below

    number = struct.Struct(form)

    def read(cursor: Cursor) -> Any:
        duration_ms = number.unpack(cursor.take(number.size))[0]
        try:
            return timedelta(milliseconds=duration_ms)
        except OverflowError:
            return duration_ms

    return read


def _nullable(field: Field) -> Reader:
    read_struct = struct_reader(field.schema)
    if not field.is_nullable or field.is_array:
        return read_struct
    return lambda cursor: None if cursor.take(1) == b"\xff" else read_struct(cursor)


def _read_uuid(cursor: Cursor) -> Any:
    from uuid import UUID  # noqa: PLC0415  what kio imports later would delay the start

    data = cursor.take(16)
    return UUID(bytes=data) if any(data) else None


def _text_reader(field: Field, flexible: bool) -> Reader:
    is_string = field.kind == "string"
    may_be_null = field.is_nullable and not field.is_array

    def read(cursor: Cursor) -> str | bytes | None:
        length = cursor.length(flexible, is_string)
        if length is None:
            if not may_be_null:
                raise ValueError(f"{field.name} is null")
            return None
        if is_string and length > STRING_LENGTH_MAX_BYTES:
            raise ValueError(f"{field.name} has {length} bytes")
        data = cursor.take(length)
        return data.decode() if is_string else data

    return read
