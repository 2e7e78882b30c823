"""Lines of text as records: `HEADERS DELIMITER KEY SEPARATOR VALUE`, each part where asked for."""

from __future__ import annotations

import re
from collections.abc import Mapping

from kbroker.cli.kafka.java import split

__all__ = ["LineReader"]

Parsed = tuple[bytes | None, bytes | None, list[tuple[str, bytes | None]] | None]

_SEPARATORS = ("key.separator", "headers.separator", "headers.delimiter", "headers.key.separator")


class LineReader:
    """What Kafka's LineMessageReader makes of lines, by its properties. Raises ValueError for
    properties that contradict each other and for lines that lack a part."""

    def __init__(self, told: Mapping[str, str]) -> None:
        def on(name: str) -> bool:
            return told.get(name, "").strip().lower() == "true"

        self.parse_key, self.parse_headers = on("parse.key"), on("parse.headers")
        self.ignore_error = on("ignore.error")
        self.null = told.get("null.marker")
        self.key_separator = told.get("key.separator", "\t")
        self.delimiter = told.get("headers.delimiter", "\t")
        self.separator = told.get("headers.separator", ",")
        self.key_value = told.get("headers.key.separator", ":")
        self._check()

    def _check(self) -> None:
        same = (
            ("headers.delimiter", self.delimiter, "headers.separator", self.separator),
            ("headers.delimiter", self.delimiter, "headers.key.separator", self.key_value),
            ("headers.separator", self.separator, "headers.key.separator", self.key_value),
            ("null.marker", self.null, "key.separator", self.key_separator),
            ("null.marker", self.null, "headers.separator", self.separator),
            ("null.marker", self.null, "headers.delimiter", self.delimiter),
            ("null.marker", self.null, "headers.key.separator", self.key_value),
        )
        for one, left, other, right in same:
            if left == right:
                raise ValueError(f"{one} and {other} may not be equal")
        try:
            re.compile(self.separator)
        except re.error as error:
            raise ValueError(f"headers.separator {self.separator!r}: {error}") from None

    def parse(self, line: str, number: int) -> Parsed:
        """Key, value and headers of a line; number: for errors."""
        at, headers, key = 0, None, None
        if self.parse_headers:
            headers = self._part(line, number, 0, self.delimiter, "headers delimiter")
            at = 0 if headers is None else len(headers) + len(self.delimiter)
        if self.parse_key:
            key = self._part(line, number, at, self.key_separator, "key separator")
            at += 0 if key is None else len(key) + len(self.key_separator)
        listed = None
        if headers is not None and headers != self.null:
            parts = split(self.separator, headers)
            listed = [self._header(part, number) for part in parts]
        return self._bytes(key), self._bytes(line[at:]), listed

    def _part(self, line: str, number: int, start: int, until: str, what: str) -> str | None:
        end = line.find(until, start)
        if end >= 0:
            return line[start:end]
        if self.ignore_error:
            return None
        raise ValueError(f"No {what} found on line number {number}: '{line}'")

    def _header(self, pair: str, number: int) -> tuple[str, bytes | None]:
        name, found, value = pair.partition(self.key_value)
        if not found:
            if self.ignore_error:
                return pair, None
            raise ValueError(
                f"No header key separator found in pair '{pair}' on line number {number}"
            )
        if name == self.null:
            raise ValueError(
                f"Header keys should not be equal to the null marker '{self.null}' as they can't be"
                " null"
            )
        return name, self._bytes(value)

    def _bytes(self, part: str | None) -> bytes | None:
        return None if part is None or part == self.null else part.encode()
