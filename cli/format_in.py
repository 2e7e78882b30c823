"""Input by a format: `kbroker produce -f '%k %s\\n'`, in the letters of `consume -f`.

%s %v value, %k key, %h headers (a=b,c=d), %T timestamp in ms, %p partition, %t topic and %o offset
(both passed over); %S %K sizes in digits, %R %Q sizes as big-endian int32: a field whose size came
before it is read by it, -1 being null; any other ends where the text behind it begins.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import click

from kbroker.cli.format import pieces_of
from kbroker.cli.records_in import BadInput, Chunk, Headers, Parsed, add

__all__ = ["FormatReader"]

_LETTERS = "svkhTptoSKRQ"
_SIZES = {"S": "s", "R": "s", "K": "k", "Q": "k"}
_SIZE_BYTES = 4


class FormatReader:
    """Makes records of bytes. `end` stands behind a record whose format does not end in text."""

    def __init__(self, text: str, end: bytes, most: int) -> None:
        pieces = ["s" if piece == "v" else piece for piece in pieces_of(text, _LETTERS)]
        sized: set[str] = set()
        if not isinstance(pieces[-1] if pieces else b"", bytes) and not _ends_itself(pieces):
            pieces.append(end)
        for at, piece in enumerate(pieces):
            if isinstance(piece, bytes):
                continue
            behind = pieces[at + 1] if at + 1 < len(pieces) else None
            if piece in _SIZES:
                sized.add(_SIZES[piece])
            alone = piece in sized or piece in ("R", "Q")
            if not alone and not isinstance(behind, bytes):
                raise click.BadParameter(
                    f"nothing tells where %{piece} ends; put text or its size there",
                    param_hint="--format",
                )
        if not any(isinstance(piece, str) for piece in pieces):
            raise click.BadParameter("no field in it", param_hint="--format")
        self._pieces = pieces
        self._most = most
        self._number = 0

    def chunks(self, stream: Iterable[bytes]) -> Iterator[Chunk]:
        """Records as they become whole; raises BadInput for what does not fit."""
        held = b""
        for piece in stream:
            held += piece
            chunk, used, wrong = self._some(held, last=False)
            held = held[used:]
            yield chunk
            if wrong is None and len(held) > self._most:
                wrong = f"it is not whole after {len(held)} bytes"
            if wrong is not None:
                raise BadInput(f"record {self._number + 1} does not fit --format: {wrong}")
        if held.strip():
            chunk, _, wrong = self._some(held, last=True)
            yield chunk
            if wrong is not None:
                raise BadInput(f"record {self._number + 1} does not fit --format: {wrong}")

    def _some(self, data: bytes, *, last: bool) -> tuple[Chunk, int, str | None]:
        """Whole records, how many bytes they took, and what is wrong with the next."""
        chunk = Chunk([], [], [], [], [], [])
        at = 0
        while at < len(data):
            try:
                found = self._one(data, at, last)
            except ValueError as error:
                return chunk, at, str(error)
            if found is None:
                return chunk, at, "it is cut" if last and data[at:].strip() else None
            record, end = found
            add(chunk, record, data[at:end])
            self._number += 1
            at = end
        return chunk, at, None

    def _one(self, data: bytes, at: int, last: bool) -> tuple[Parsed, int] | None:
        """A record at a place, and where it ends; None: it is not whole yet."""
        found: dict[str, bytes | None] = {}
        sizes: dict[str, int] = {}
        for place, piece in enumerate(self._pieces):
            if isinstance(piece, bytes):
                end = at + len(piece)
                if data[at:end] != piece:
                    rest = data[at:end]
                    if len(rest) < len(piece) and piece.startswith(rest):
                        if last and place == len(self._pieces) - 1:
                            at = len(data)  # the end of the input ends the last record
                            continue
                        return None
                    raise ValueError(f"{rest!r} where {piece!r} is due")
                at = end
                continue
            span = self._field(data, at, place, sizes, last)
            if span is None:
                return None
            found[piece], at = span
            if piece in _SIZES:
                sizes[_SIZES[piece]] = _size(piece, found[piece] or b"")
        return _record(found), at

    def _field(
        self, data: bytes, at: int, place: int, sizes: dict[str, int], last: bool
    ) -> tuple[bytes | None, int] | None:
        piece = self._pieces[place]
        known = sizes.get(piece) if isinstance(piece, str) else None
        if piece in ("R", "Q"):
            known = _SIZE_BYTES
        if known is not None:
            if known < 0:
                return None, at
            end = at + known
            return (data[at:end], end) if end <= len(data) else None
        behind = self._pieces[place + 1]
        assert isinstance(behind, bytes)
        end = data.find(behind, at)
        if end < 0 and last and place + 2 == len(self._pieces):
            end = len(data)
        return (data[at:end], end) if end >= 0 else None


def _ends_itself(pieces: list[bytes | str]) -> bool:
    """Whether the size of the last field came before it."""
    return any(_SIZES.get(str(piece)) == pieces[-1] for piece in pieces[:-1])


def _size(letter: str, text: bytes) -> int:
    if letter in ("R", "Q"):
        size = int.from_bytes(text, "big", signed=True)
    elif re.fullmatch(rb"-1|[0-9]{1,10}", text):
        size = int(text)
    else:
        raise ValueError(f"%{letter} is {text[:20]!r}, no size")
    if size < -1:
        raise ValueError(f"%{letter} is {size}, no size")
    return size


def _number(letter: str, text: bytes | None) -> int | None:
    if text is None:
        return None
    if not re.fullmatch(rb"-?[0-9]{1,19}", text):
        raise ValueError(f"%{letter} is {text[:20]!r}, no number")
    found = int(text)
    return found if found >= 0 else None


def _record(found: dict[str, bytes | None]) -> Parsed:
    return (
        found.get("k"),
        found.get("s"),
        _headers(found.get("h")),
        _number("T", found.get("T")),
        _number("p", found.get("p")),
    )


def _headers(text: bytes | None) -> Headers:
    """a=b,c=d as `consume -f %h` prints it."""
    headers: Headers = []
    for part in (text or b"").split(b","):
        name, equals, value = part.partition(b"=")
        if name:
            shown = name.decode("utf-8", "surrogateescape")
            headers.append((shown, value if equals else None))
    return headers
