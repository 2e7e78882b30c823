"""DER (X.690), as much of it as certificates need: read in place, written as it is put together.

A value is one tag byte, its length, its contents. Numbers of tags above 30 do not occur here.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

INTEGER: Final = 0x02
BIT_STRING: Final = 0x03
OCTET_STRING: Final = 0x04
OID: Final = 0x06
UTF8_STRING: Final = 0x0C
UTC_TIME: Final = 0x17
GENERALIZED_TIME: Final = 0x18
BOOLEAN: Final = 0x01
SEQUENCE: Final = 0x30
SET: Final = 0x31
LONG_LENGTH: Final = 0x80


class Value(NamedTuple):
    """One value: `contents` without, `whole` with its tag and length."""

    tag: int
    contents: bytes
    whole: bytes

    def parts(self) -> list[Value]:
        """The values that it is made of. Raises ValueError."""
        return list(values(self.contents))


def values(data: bytes) -> Iterator[Value]:
    """One value after another. Raises ValueError for what is no DER."""
    at = 0
    while at < len(data):
        if at + 2 > len(data):
            raise ValueError("a value is cut off")
        begin = at + 2
        length = data[at + 1]
        if length & LONG_LENGTH:
            count = length & ~LONG_LENGTH
            length = int.from_bytes(data[begin : begin + count], "big")
            begin += count
            if not 1 <= count <= 4 or begin > len(data):
                raise ValueError("a length that is none")
        if begin + length > len(data):
            raise ValueError("a value is cut off")
        yield Value(data[at], data[begin : begin + length], data[at : begin + length])
        at = begin + length


def value(data: bytes) -> Value:
    """The one value that `data` is. Raises ValueError."""
    found = list(values(data))
    if len(found) != 1:
        raise ValueError(f"{len(found)} values where one was due")
    return found[0]


def oid_text(contents: bytes) -> str:
    """1.2.840.113549 of an object identifier's contents. Raises ValueError."""
    numbers, number = [], 0
    for byte in contents:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    if not numbers or contents[-1] & 0x80:
        raise ValueError("an object identifier that is none")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def put(tag: int, *parts: bytes) -> bytes:
    """A value of these contents."""
    contents = b"".join(parts)
    length = len(contents)
    if length < LONG_LENGTH:
        return bytes((tag, length)) + contents
    told = length.to_bytes((length.bit_length() + 7) // 8, "big")
    return bytes((tag, LONG_LENGTH | len(told))) + told + contents


def put_integer(number: int) -> bytes:
    """An INTEGER, not negative."""
    return put(INTEGER, number.to_bytes(number.bit_length() // 8 + 1, "big"))


def put_oid(text: str) -> bytes:
    """An OBJECT IDENTIFIER from 1.2.840.113549."""
    first, second, *others = map(int, text.split("."))
    written = b""
    for number in (40 * first + second, *others):
        groups = [number & 0x7F]
        while number := number >> 7:
            groups.append(number & 0x7F | 0x80)
        written += bytes(reversed(groups))
    return put(OID, written)
