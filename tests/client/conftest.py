"""What the client's tests share."""

from __future__ import annotations

import pytest

import kbroker.client.transactions as room


@pytest.fixture(params=[1, 2], ids=["v1", "v2"])
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """The version of the protocol that producers speak."""
    if request.param == 1:
        monkeypatch.setattr(room, "_VERSION_2", 99)
    return int(request.param)
