"""What a test tried, what was lost, and what its control lost: told to the table of tests/faults.

A test whose fault stands in `tests/faults/catalog.py` asks for `tally` and tells how often it did
what; `python -m tests.faults` adds up. Without that command nothing comes of it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest

PROPERTY = "fault"


class Told(NamedTuple):
    """Of one fault: `lost` counts what a promise forbids, `control` what the control lost."""

    fault: str
    tried: int = 0
    lost: int = 0
    control: int = 0


Tally = Callable[..., None]


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Tally:
    """tally("F1", tried=20, lost=len(lines)); tally("F1", control=7): before it is asserted."""

    def tell(fault: str, *, tried: int = 0, lost: int = 0, control: int = 0) -> None:
        record_property(PROPERTY, tuple(Told(fault, tried, lost, control)))

    return tell
