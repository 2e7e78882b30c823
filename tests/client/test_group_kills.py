"""kill -9 of the broker while this client's consumers come, go, read and commit."""

from __future__ import annotations

import pytest

from tests.clients import test_groups_kills as kills
from tests.support.rounds import scaled

scene = kills.scene

LONG = pytest.mark.long
CYCLES = scaled(4, full=6)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "commit", "cycles"),
    [
        ("kbroker/cooperative-sticky", "auto", 2),
        pytest.param("kbroker/range", "sync", CYCLES, marks=LONG),
        pytest.param("kbroker/cooperative-sticky", "async", CYCLES, marks=LONG),
        pytest.param("kbroker/consumer", "auto", CYCLES, marks=LONG),
        pytest.param("kbroker/consumer", "sync", CYCLES, marks=LONG),
    ],
)
def test_the_broker_is_killed_in_rebalances(
    scene: kills.Scene, kind: str, commit: str, cycles: int
) -> None:
    kills.test_the_broker_is_killed_in_rebalances(scene, [kind], commit, cycles)
