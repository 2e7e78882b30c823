"""kill -9 of the broker while this client's consumers come, go, read and commit."""

from __future__ import annotations

import pytest

from tests.clients import test_groups_kills as kills

scene = kills.scene

LONG = pytest.mark.long


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("kind", "commit", "cycles"),
    [
        ("kbroker/cooperative-sticky", "auto", 2),
        pytest.param("kbroker/range", "sync", 6, marks=LONG),
        pytest.param("kbroker/cooperative-sticky", "async", 6, marks=LONG),
        pytest.param("kbroker/consumer", "auto", 6, marks=LONG),
        pytest.param("kbroker/consumer", "sync", 6, marks=LONG),
    ],
)
def test_the_broker_is_killed_in_rebalances(
    scene: kills.Scene, kind: str, commit: str, cycles: int
) -> None:
    kills.test_the_broker_is_killed_in_rebalances(scene, [kind], commit, cycles)
