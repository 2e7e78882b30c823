"""Coordinators of a simulation wait for their appends, however busy the machine is.

An append that takes 10 ms pauses its coordinator; a simulated client then gets other errors, in
another order, than the same seed gave before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from kbroker.ext.testing import set_append_grace_s

LONG_S = 60.0


@contextmanager
def patient_appends() -> Iterator[None]:
    """Coordinators in this process wait for each append of the block."""
    before = set_append_grace_s(LONG_S)
    try:
        yield
    finally:
        set_append_grace_s(before)


@pytest.fixture(autouse=True)
def _patient_appends() -> Iterator[None]:
    with patient_appends():
        yield
