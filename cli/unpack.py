"""kcat's -s: keys and values as numbers and text.

< little-endian   > big-endian, as at the beginning
b B int8   h H int16   i I int32   q Q int64, the capital ones unsigned
c one character   s the rest as it is   $ here it ends   a blank stands for itself
"""

from __future__ import annotations

import struct
from collections.abc import Callable

import click

__all__ = ["Unpack", "unpackers"]

Unpack = Callable[[bytes], bytes]

_NUMBERS = "bBhHiIqQ"


def unpackers(told: tuple[str, ...], *, go_on: bool = False) -> dict[str, Unpack]:
    """By the letters of what they show, s and k. What does not fit raises click.ClickException, or
    is told and shown as nothing where it shall go on. Raises click.BadParameter."""
    found: dict[str, Unpack] = {}
    for text in told:
        field, equals, form = text.partition("=")
        letters = {"key": "k", "value": "s"}.get(field, "") if equals else "sk"
        form = form if equals else text
        wrong = form.strip(f"<>cs$ {_NUMBERS}")
        if not letters or not form or wrong:
            raise click.BadParameter(
                f"{text!r}: write key=FORM, value=FORM or FORM, of < > b B h H i I q Q c s $",
                param_hint="-s",
            )
        unpack = _unpacker(form)
        found |= dict.fromkeys(letters, _telling(unpack) if go_on else unpack)
    return found


def _telling(unpack: Unpack) -> Unpack:
    def told(data: bytes) -> bytes:
        try:
            return unpack(data)
        except click.ClickException as error:
            click.echo(f"kbroker: {error.message}", err=True)
            return b""

    return told


def _unpacker(form: str) -> Unpack:
    def unpack(data: bytes) -> bytes:
        order, at, out = ">", 0, b""
        for letter in form:
            if letter in "<>":
                order = letter
            elif letter == "s":
                out, at = out + data[at:], len(data)
            elif letter == "$" and at < len(data):
                raise click.ClickException(f"-s {form}: {data!r} goes on behind byte {at}")
            elif letter == " ":
                out += b" "
            elif letter != "$":
                size = struct.calcsize(f"={letter}")
                piece = data[at : at + size]
                if len(piece) < size:
                    raise click.ClickException(f"-s {form}: {data!r} ends before its {letter}")
                at += size
                number = letter in _NUMBERS
                out += b"%d" % struct.unpack(order + letter, piece)[0] if number else piece
        return out

    return unpack
