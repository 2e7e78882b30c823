"""Which partition of `__consumer_offsets` holds a group."""

from __future__ import annotations

import functools
import struct
from typing import Final

_INT_BITS: Final = 32
_INT_MASK: Final = (1 << _INT_BITS) - 1


KEPT_LENGTH_MAX_CHARS: Final = 255
"""Hashes of longer ids are not kept: clients choose them, up to 32 KiB, and of groups that are not
there."""


def group_partition(group_id: str, partitions: int) -> int:
    """Java's String.hashCode, made positive as Kafka's Utils.abs does it, modulo `partitions`."""
    if len(group_id) > KEPT_LENGTH_MAX_CHARS:
        return _absolute(java_string_hash(group_id)) % partitions
    return _kept_partition(group_id, partitions)


@functools.lru_cache(16_384)  # every heartbeat asks
def _kept_partition(group_id: str, partitions: int) -> int:
    return _absolute(java_string_hash(group_id)) % partitions


def java_string_hash(text: str) -> int:
    """s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for unit in struct.unpack(f">{len(units) // 2}H", units):
        value = (31 * value + unit) & _INT_MASK
    return value - (1 << _INT_BITS) if value >> (_INT_BITS - 1) else value


def _absolute(value: int) -> int:
    """The smallest integer has no opposite in 32 bits and becomes zero."""
    return 0 if value == -(1 << (_INT_BITS - 1)) else abs(value)
