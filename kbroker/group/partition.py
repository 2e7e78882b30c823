"""Which partition of `__consumer_offsets` holds a group."""

from __future__ import annotations

import functools
from typing import Final

_INT_BITS: Final = 32
_INT_MASK: Final = (1 << _INT_BITS) - 1


@functools.lru_cache(16_384)  # every heartbeat asks
def group_partition(group_id: str, partitions: int) -> int:
    """Java's String.hashCode, made positive as Kafka's Utils.abs does it, modulo `partitions`."""
    return _absolute(java_string_hash(group_id)) % partitions


def java_string_hash(text: str) -> int:
    """s[0] * 31^(n-1) + ... + s[n-1] over UTF-16 code units, as a signed 32-bit integer."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & _INT_MASK
    return value - (1 << _INT_BITS) if value >> (_INT_BITS - 1) else value


def _absolute(value: int) -> int:
    """The smallest integer has no opposite in 32 bits and becomes zero."""
    return 0 if value == -(1 << (_INT_BITS - 1)) else abs(value)
