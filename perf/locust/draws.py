"""Sizes and keys drawn from a distribution that a text names.

    fixed:100  uniform:10-1000  lognormal:200,1.0 (median, sigma)  none (keys)  zipf:1000,1.1
"""

from __future__ import annotations

import bisect
import itertools
import random
from collections.abc import Callable

Draw = Callable[[], int]

SIZE_MAX = 900_000  # below max.message.bytes of any broker


def draw(text: str, dice: random.Random) -> Draw:
    """Whole numbers of the distribution. Raises ValueError for a text that names none."""
    kind, _, told = text.partition(":")
    try:
        return _DRAWS[kind](told, dice)
    except (KeyError, ValueError, IndexError):
        known = ", ".join(_DRAWS)
        raise ValueError(f"{text!r} is no distribution; write one of {known}:...") from None


def _fixed(told: str, _dice: random.Random) -> Draw:
    value = int(told)
    return lambda: value


def _uniform(told: str, dice: random.Random) -> Draw:
    low, high = map(int, told.split("-"))
    if low > high:
        raise ValueError(told)
    return lambda: dice.randint(low, high)


def _lognormal(told: str, dice: random.Random) -> Draw:
    median, sigma = map(float, told.split(","))
    if median <= 0 or sigma < 0:
        raise ValueError(told)
    return lambda: min(int(median * dice.lognormvariate(0, sigma)), SIZE_MAX)


def _zipf(told: str, dice: random.Random) -> Draw:
    """Numbers below N, of which the first are drawn most: the n-th 1/n^s as often as the first."""
    count, _, exponent = told.partition(",")
    weights = [1 / rank ** float(exponent or 1) for rank in range(1, int(count) + 1)]
    if not weights:
        raise ValueError(told)
    sums = list(itertools.accumulate(weights))
    return lambda: bisect.bisect_left(sums, dice.random() * sums[-1])


_DRAWS = {"fixed": _fixed, "uniform": _uniform, "lognormal": _lognormal, "zipf": _zipf}
