"""Records for `kbroker produce`: lines, whole files, JSON envelopes.

Bytes come in pieces of up to _READ_BYTES and leave as Chunks, as many records as a piece has, so
that a slow input is sent record by record and a fast one in bulk. What is wrong with a record of
the input is raised as BadInput, after the chunk of the records before it.
"""

from __future__ import annotations

import json
import os
import re
import select
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import click

from kbroker.cli.stopping import Stop

__all__ = [
    "BadInput",
    "Chunk",
    "Headers",
    "by_lines",
    "parse_json",
    "parsed",
    "read",
    "split",
    "whole_files",
]

_READ_BYTES = 1 << 20

Headers = list[tuple[str, bytes | None]]
Parsed = tuple[bytes | None, bytes | None, Headers, int | None, int | None]
"""key, value, headers, timestamp in ms, partition"""


class BadInput(click.ClickException):
    """The input is not what the options say."""


@dataclass(slots=True)
class Chunk:
    """Records as columns; None: nothing of the kind in the input. raw: as they were read."""

    values: list[bytes | None] = field(default_factory=list)
    keys: list[bytes | None] | None = None
    headers: list[Headers] | None = None
    timestamps_ms: list[int | None] | None = None
    partitions: list[int | None] | None = None
    raw: list[bytes] | None = None

    def __len__(self) -> int:
        return len(self.values)

    def part(self, start: int, end: int) -> Chunk:
        """Records from start on, before end."""
        if start == 0 and end >= len(self):
            return self
        return Chunk(*(
            None if column is None else column[start:end]
            for column in (
                self.values, self.keys, self.headers, self.timestamps_ms, self.partitions, self.raw,
            )
        ))  # type: ignore[arg-type]  # fmt: skip


def read(stream: BinaryIO, stop: Stop) -> Iterator[bytes]:
    """A stream in pieces, as they come. StoppedError by a signal only while nothing has come."""
    try:
        descriptor = stream.fileno()
    except OSError:  # no file, but something that is read like one
        descriptor = -1
    while True:
        if descriptor >= 0:
            with stop.interruptible():
                select.select([descriptor], [], [])
            piece = os.read(descriptor, _READ_BYTES)
        else:
            piece = stream.read(_READ_BYTES)
        if not piece:
            return
        yield piece


def split(pieces: Iterable[bytes], between: bytes, most: int) -> Iterator[list[bytes | int]]:
    """What stands between delimiters; behind the last one it counts unless it is empty.

    A record of more than `most` bytes is not kept: its length stands for it.
    """
    held = bytearray()
    skipped = 0
    for piece in pieces:
        start = max(0, len(held) - len(between) + 1)
        held += piece
        last = held.rfind(between, start)
        if last < 0:
            if len(held) > most:
                skipped += len(held) - len(between) + 1
                del held[: len(held) - len(between) + 1]
            continue
        whole: list[bytes | int] = [*bytes(held[:last]).split(between)]
        del held[: last + len(between)]
        if skipped:
            first = whole[0]
            whole[0] = skipped + len(first) if isinstance(first, bytes) else skipped
            skipped = 0
        yield whole
    if skipped:
        yield [skipped + len(held)]
    elif held:
        yield [bytes(held)]


def whole_files(paths: Iterable[Path]) -> Iterator[list[bytes | int]]:
    """Each file as one record."""
    return ([path.read_bytes()] for path in paths)


def by_lines(
    groups: Iterable[list[bytes | int]], key: bytes | None, split_at: bytes | None, null: bool
) -> Iterator[Chunk | int]:
    """Lines as values, or as keys and values where split_at stands between them; key: of those
    without one. null: what is empty becomes null. A length of a record too large comes alone."""
    for group in groups:
        lines: list[bytes] = []
        for entry in group:
            if isinstance(entry, int):
                yield _of_lines(lines, key, split_at, null)
                lines = []
                yield entry
            else:
                lines.append(entry)
        yield _of_lines(lines, key, split_at, null)


def _of_lines(lines: list[bytes], key: bytes | None, split_at: bytes | None, null: bool) -> Chunk:
    values: list[bytes | None] = [*lines]
    keys: list[bytes | None] | None = None if key is None else [key] * len(lines)
    if split_at is not None:
        found = [line.partition(split_at) for line in lines]
        keys = [before if there else key for before, there, _ in found]
        values = [after if there else before for before, there, after in found]
        if null:
            keys = [at or key for at in keys]
    if null:
        values = [value or None for value in values]
    return Chunk(values, keys, raw=lines)


def parsed(
    groups: Iterable[list[bytes | int]], parse: Callable[[bytes], Parsed], *, go_on: bool
) -> Iterator[Chunk | int | BadInput]:
    """Records that `parse` makes of lines; its ValueErrors as BadInput with the number of the
    line, raised, or in the line's place where it shall go on."""
    number = 0
    for group in groups:
        chunk = Chunk([], [], [], [], [], [])
        for entry in group:
            number += 1
            if isinstance(entry, int):
                yield chunk
                chunk = Chunk([], [], [], [], [], [])
                yield entry
                continue
            if not entry.strip():
                continue
            try:
                add(chunk, parse(entry), entry)
            except (ValueError, RecursionError) as error:
                yield chunk
                chunk = Chunk([], [], [], [], [], [])
                wrong = BadInput(f"line {number}: {error}")
                if not go_on:
                    raise wrong from error
                yield wrong
        yield chunk


def add(chunk: Chunk, record: Parsed, raw: bytes) -> None:
    """One more record, for a chunk of all columns."""
    key, value, headers, timestamp_ms, partition = record
    chunk.values.append(value)
    for column, entry in (
        (chunk.keys, key),
        (chunk.headers, headers),
        (chunk.timestamps_ms, timestamp_ms),
        (chunk.partitions, partition),
        (chunk.raw, raw),
    ):
        assert column is not None
        column.append(entry)  # type: ignore[arg-type]


# ---- JSON


def parse_json(line: bytes) -> Parsed:
    """A line of `kbroker consume -J`, kcat -J or rpk. Raises ValueError."""
    text = line.decode("utf-8", "surrogateescape")
    try:
        found = json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(f"no JSON: {error.msg}, at column {error.colno}") from None
    if not isinstance(found, dict):
        raise ValueError("no JSON object")
    found = _as_written(found, text)
    if "payload" not in found and "value" not in found:
        raise ValueError('no "payload"; a line is what `kbroker consume -J` prints')
    value = found["payload"] if "payload" in found else found["value"]
    at = found.get("ts", found.get("timestamp"))
    partition = found.get("partition")
    for name, number in (("ts", at), ("partition", partition)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
            raise ValueError(f'"{name}" is {number!r}, no whole number')
    return (
        _bytes(found.get("key")),
        _bytes(value),
        _headers(found.get("headers")),
        at if at is None or at >= 0 else None,
        partition,
    )


def _bytes(value: Any) -> bytes | None:
    """Text as it is, null, and other JSON as it was written."""
    if value is None:
        return None
    return _encoded(value.text if isinstance(value, _Written) else value)


def _encoded(text: str) -> bytes:
    try:
        return text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        bad = text[error.start]
        raise ValueError(f"\\u{ord(bad):04x} is no character and no escaped byte") from None


class _Written(NamedTuple):
    """JSON that is no string, as it was written: numbers keep their digits."""

    text: str


_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\n\r]*")
_DEPTHS = {"key": 0, "payload": 0, "value": 0, "headers": 2}
"""Members that are sent, and how many levels of lists and objects in them are not."""


def _as_written(found: dict[str, Any], text: str) -> dict[str, Any]:
    """What is sent of a line that was read: JSON other than strings is taken from the text."""
    if all(_is_plain(found.get(name)) for name in ("key", "payload", "value")) and all(
        _is_plain(value) for value in _values_of(found.get("headers"))
    ):
        return found
    at = _skip(text, 0)
    spans = {name: start for name, start, _ in _members(text, at)}  # the last of a name counts
    for name, depth in _DEPTHS.items():
        if name in spans:
            found[name] = _read(text, spans[name], depth)
    return found


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, str)


def _values_of(headers: Any) -> Iterable[Any]:
    """Values of headers that are a flat list or an object; others are looked at in the text."""
    if isinstance(headers, dict):
        return headers.values()
    return headers if isinstance(headers, list) else ()


def _read(text: str, at: int, depth: int) -> Any:
    """The value at this place of a text that is JSON."""
    if depth and text[at] == "{":
        return {name: _read(text, start, depth - 1) for name, start, _ in _members(text, at)}
    if depth and text[at] == "[":
        return [_read(text, start, depth - 1) for _, start, _ in _members(text, at)]
    value, end = _DECODER.raw_decode(text, at)
    return value if _is_plain(value) else _Written(text[at:end])


def _members(text: str, at: int) -> Iterator[tuple[str, int, int]]:
    """Yield name, start and end of each value in the object or list that begins there."""
    named = text[at] == "{"
    name, at = "", _skip(text, at + 1)
    while text[at] not in "}]":
        if named:
            name, at = _DECODER.raw_decode(text, at)
            at = _skip(text, _skip(text, at) + 1)
        start = at
        _, at = _DECODER.raw_decode(text, start)
        yield name, start, at
        at = _skip(text, at)
        if text[at] == ",":
            at = _skip(text, at + 1)


def _skip(text: str, at: int) -> int:
    """Behind the white space that begins there."""
    found = _SPACE.match(text, at)
    return found.end() if found is not None else at


def _headers(given: Any) -> Headers:
    """kcat's flat list, an object, or rpk's list of {"key", "value"}."""
    if given is None:
        return []
    if isinstance(given, dict):
        return [(_name(name), _bytes(value)) for name, value in given.items()]
    if isinstance(given, list) and all(isinstance(entry, dict) for entry in given):
        return [(_name(entry.get("key")), _bytes(entry.get("value"))) for entry in given]
    if not isinstance(given, list) or len(given) % 2:
        raise ValueError('"headers" is no list of names and values')
    return [(_name(name), _bytes(value)) for name, value in zip(*[iter(given)] * 2, strict=True)]


def _name(name: Any) -> str:
    if not isinstance(name, str):
        shown = name.text if isinstance(name, _Written) else name
        raise ValueError(f"the name of a header is {shown!r}, no string")
    _encoded(name)
    return name
