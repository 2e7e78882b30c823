"""Numbers of rounds of the long tests.

`make test-long` takes an hour: each long test has as many rounds as find faults. `FULL=1` gives
soaks, hundreds of power cuts and models of a million steps, which take hours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from itertools import product
from typing import Any, TypeVar

import pytest

#: Of a test that only FULL=1 runs: what it shows in hours, others show in minutes.
FULL_ONLY = "full"
#: `make test-long FULL=1`, `make faults FULL=1` and `python -m tests.faults --full` set it to "1",
#: before any test module is imported.
FULL_VARIABLE = "KBROKER_TEST_FULL"

T = TypeVar("T")
U = TypeVar("U")


def is_full() -> bool:
    """Return whether the long tests run with their full numbers."""
    return os.environ.get(FULL_VARIABLE) == "1"


def scaled(long: T, *, full: T) -> T:
    """Return the value of this run for a test or a seed range that is long."""
    return full if is_full() else long


def combined(first: Sequence[T], second: Sequence[U]) -> list[tuple[T, U]]:
    """Return every combination with FULL=1; otherwise each of `first` with one of `second`."""
    if is_full():
        return list(product(first, second))
    return [(one, second[at % len(second)]) for at, one in enumerate(first)]


def rounds(*short: Any, long: Any, full: Any) -> list[Any]:
    """Return the parameters of a test: those of `make test`, and one of the long tests."""
    return [*short, pytest.param(scaled(long, full=full), marks=pytest.mark.long)]
