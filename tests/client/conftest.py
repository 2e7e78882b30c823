"""What the client's tests share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

import kbroker.client.transactions as room
from kbroker.protocol import ApiKey
from tests.client.between import Between
from tests.support.processes import BrokerProcess


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of the protocol that producers speak."""
    if request.param == 1:
        monkeypatch.setattr(room, "_VERSION_2", 99)
    return int(request.param)


@pytest.fixture
def version_1(monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers speak the older protocol, in which an epoch outlives its transactions."""
    monkeypatch.setattr(room, "_VERSION_2", 99)


@pytest.fixture
def between(start_kbroker: Callable[..., BrokerProcess]) -> Iterator[Callable[..., Between]]:
    """Starts brokers with a middle before them: between(api)."""
    made: list[Between] = []

    def start(api: ApiKey) -> Between:
        made.append(Between(api, start_kbroker))
        return made[-1]

    yield start
    for each in made:
        each.middle.close()
