"""An error that is told more than once."""

from __future__ import annotations

import copy
from typing import TypeVar

__all__ = ["again"]

E = TypeVar("E", bound=Exception)


def again(error: E) -> E:
    """A copy, to be raised on its own: each has the traceback of where it was raised."""
    copied = copy.copy(error)
    copied.__cause__ = error.__cause__
    return copied
