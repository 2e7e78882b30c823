"""Java's clients by the version of the protocol of transactions that they speak."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.pipeline.connector import NoMavenError, jars
from tests.support.needs import missing


@pytest.fixture(params=[pytest.param("v1", marks=pytest.mark.long), "v2"])
def java_classes(request: pytest.FixtureRequest, classes: Path) -> Path:
    """The programs of tests/clients/java, for version 1 on top of a client that knows no other:
    3.9, which Spark's connector brings."""
    if request.param == "v2":
        return classes
    try:
        old = next(jar for jar in jars() if jar.name.startswith("kafka-clients-3."))
    except NoMavenError:
        missing("the program mvn", "maven")
        raise
    return Path(f"{classes}:{old}")
