"""Fixtures of the unit tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.control import ControlPlane


@pytest.fixture
def control_with(tmp_path: Path) -> Iterator[Callable[..., ControlPlane]]:
    """Makes control planes with settings of the test's own, on one directory."""
    made = []

    def make(**settings: str) -> ControlPlane:
        dotted = {name.replace("_", "."): value for name, value in settings.items()}
        made.append(ControlPlane(tmp_path, dotted))
        return made[-1]

    yield make
    for plane in made:
        plane.close()


@pytest.fixture
def control(control_with: Callable[..., ControlPlane]) -> ControlPlane:
    """A control plane with default settings."""
    return control_with()
