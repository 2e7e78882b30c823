"""The months of the flights, as ranges of time in ms since 1970."""

from __future__ import annotations

from datetime import UTC, datetime
from itertools import pairwise

from examples.pipeline.plan import DAY_MS

#: New York's standard time: nothing leaves in the hour that summer time moves.
_MIDNIGHT_UTC = 5


def first_ms(month: int) -> int:
    """Where a month of 2013 begins in New York; 13 is the January that follows."""
    year, index = divmod(month - 1, 12)
    return int(datetime(2013 + year, index + 1, 1, _MIDNIGHT_UTC, tzinfo=UTC).timestamp() * 1000)


def months(days: int) -> dict[str, tuple[int, int]]:
    """Beginnings and ends by name, as far as the first days of the year go."""
    over_ms = first_ms(1) + days * DAY_MS
    bounds = [first_ms(month) for month in range(1, 14)]
    return {
        f"2013-{month:02}": (start, min(end, over_ms))
        for month, (start, end) in enumerate(pairwise(bounds), 1)
        if start < over_ms
    }
