"""Which protocol a group takes: each member votes for the first that all support.

Where votes are equal Apache Kafka takes what comes first in a Java HashMap of the names voted for.
Clients see which one it was, so the order of that map is followed here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

from kbroker.group.partition import java_string_hash

_TABLE_MIN: Final = 16
_LOAD_PERCENT: Final = 75


def winner(votes: Iterable[str]) -> str:
    """The protocol with the most votes; there is at least one."""
    counted = Counter(votes)
    table = _TABLE_MIN
    while len(counted) * 100 > table * _LOAD_PERCENT:
        table *= 2
    return min(counted, key=lambda name: (-counted[name], _slot(name, table)))


def _slot(name: str, table: int) -> int:
    """Where a HashMap of `table` slots keeps a name."""
    value = java_string_hash(name) & 0xFFFFFFFF
    return (value ^ value >> 16) & (table - 1)
