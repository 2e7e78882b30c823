"""Salts of SCRAM passwords, as Apache Kafka's tools make them: 130 bits as a number of base 36.

All that kbroker makes are alike, whichever part of it makes them: of who logs in, the length of the
salt is told to everybody.
"""

from __future__ import annotations

import secrets
from typing import Final

_BITS: Final = 130
_DIGITS: Final = b"0123456789abcdefghijklmnopqrstuvwxyz"


def new_salt() -> bytes:
    """A salt of 24 bytes or so, at most 26."""
    return _digits(secrets.randbits(_BITS))


def is_number(salt: bytes) -> bool:
    """Whether it is of such digits only."""
    return bool(salt) and not salt.strip(_DIGITS)


def number_of(size: int, seed: int) -> bytes:
    """A number of this size that new_salt could have made, if it makes any of this size."""
    least, most = len(_DIGITS) ** (size - 1), len(_DIGITS) ** size
    if least < 1 << _BITS:
        most = min(most, 1 << _BITS)
    return _digits(least + seed % (most - least))


def _digits(number: int) -> bytes:
    found = bytearray()
    while number or not found:
        number, digit = divmod(number, len(_DIGITS))
        found.append(_DIGITS[digit])
    found.reverse()
    return bytes(found)
