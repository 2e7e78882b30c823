"""Reader of Java properties files, the syntax of Apache Kafka's server.properties.

A logical line is a key, a separator (`=`, `:` or blanks) and a value; `#` and `!` begin comments;
a backslash at the end of a line continues it on the next one, whose leading blanks are dropped;
`\\t \\n \\r \\f \\uXXXX` and a backslash before any other character stand for that character. The
file is UTF-8 or, where it is not valid as such, ISO-8859-1, which Java takes every file for. A key
given twice takes its last value, as in Java.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

from kbroker.config.types import ConfigError

_BLANKS: Final = " \t\f"
_HEX: Final = frozenset("0123456789abcdefABCDEF")
_ESCAPES: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    """A value with the number of the line on which its key stands."""

    value: str
    line: int


def parse_properties(text: str) -> dict[str, Property]:
    """Keys and values of a properties file in the order of their lines. Raises ConfigError."""
    found: dict[str, Property] = {}
    for number, line in _logical_lines(text):
        key, value = _split(line)
        try:
            found[_unescape(key)] = Property(_unescape(value), number)
        except ValueError:
            raise ConfigError(f"line {number}: malformed \\uxxxx escape") from None
    return found


def read_properties(path: Path) -> dict[str, Property]:
    """Keys and values of the file at `path`. Raises ConfigError, with the path in its text."""
    try:
        return parse_properties(_decoded(path.read_bytes()))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except ConfigError as error:
        raise ConfigError(f"{path}, {error}") from None


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data.decode("latin-1")


def property_values(path: Path) -> dict[str, str]:
    """Keys and values of a file alone. Raises as read_properties."""
    return {key: found.value for key, found in read_properties(path).items()}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with continuations joined, without comments and blank lines."""
    joined = ""
    start = 0
    for number, raw in enumerate(text.replace("\r\n", "\n").replace("\r", "\n").split("\n"), 1):
        line = raw.lstrip(_BLANKS)
        if not start:
            if not line or line[0] in "#!":
                continue
            start = number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            joined += line[:-1]
            continue
        yield start, joined + line
        joined, start = "", 0
    if start:
        yield start, joined


def _split(line: str) -> tuple[str, str]:
    """Key and value of a logical line, both still escaped."""
    end = 0
    while end < len(line) and line[end] not in "=:" + _BLANKS:
        end += 2 if line[end] == "\\" else 1
    rest = line[end:].lstrip(_BLANKS)
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(_BLANKS)
    return line[:end], rest


def _unescape(text: str) -> str:
    """`text` with its backslash escapes resolved. Raises ValueError for a bad \\u."""
    if "\\" not in text:
        return text
    out = []
    at = 0
    while at < len(text):
        char = text[at]
        at += 1
        if char != "\\" or at == len(text):
            out.append(char)
            continue
        char = text[at]
        at += 1
        if char == "u":
            digits = text[at : at + 4]
            if len(digits) != 4 or not set(digits) <= _HEX:
                raise ValueError(digits)
            out.append(chr(int(digits, 16)))
            at += 4
        else:
            out.append(_ESCAPES.get(char, char))
    return "".join(out)
