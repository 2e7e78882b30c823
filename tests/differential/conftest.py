"""The pair of brokers that the differential tests compare."""

from __future__ import annotations

import os
import time

import pytest

from tests.differential.harness import Differ
from tests.support.kbroker import kbroker_is_built


@pytest.fixture(scope="session")
def differ(request: pytest.FixtureRequest) -> Differ:
    """Kafka and kbroker; Kafka and itself without kbroker or with KBROKER_TEST_SELF=1."""
    kafka = request.getfixturevalue("kafka")
    if not kbroker_is_built() or os.environ.get("KBROKER_TEST_SELF") == "1":
        return Differ(kafka, kafka)
    return Differ(kafka, request.getfixturevalue("kbroker"))


@pytest.fixture
def now_ms() -> int:
    return int(time.time() * 1000)
