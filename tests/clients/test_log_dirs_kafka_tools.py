"""Kafka's own tools for log directories against a broker that has two."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support import wire
from tests.support.kafka import tool_output
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

SLOW_S = 60


@pytest.fixture
def second(tmp_path: Path) -> Path:
    return tmp_path / "second"


@pytest.fixture
def broker(start_kbroker: Callable[..., BrokerProcess], second: Path) -> Iterator[KbrokerProcess]:
    made = start_kbroker({}, more_dirs=(second,))
    assert isinstance(made, KbrokerProcess)
    yield made


def directories(broker: BrokerProcess, topic: str) -> dict[str, list[str]]:
    """kafka-log-dirs: the partitions of each directory."""
    told = tool_output("log-dirs", "--bootstrap-server", broker.bootstrap, "--describe",
                       "--topic-list", topic)  # fmt: skip
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return {
        one["logDir"]: sorted(part["partition"] for part in one["partitions"])
        for node in found["brokers"] for one in node["logDirs"]
    }  # fmt: skip


@pytest.mark.timeout(300)
def test_partitions_are_described_and_moved(
    broker: KbrokerProcess, topic: str, second: Path, tmp_path: Path
) -> None:
    wire.create_topic(broker.port, topic, 2)
    first = str(broker.data_dir)
    assert directories(broker, topic) == {first: [f"{topic}-0"], str(second): [f"{topic}-1"]}
    parts = [
        {"topic": topic, "partition": 0, "replicas": [1], "log_dirs": [str(second)]},
        {"topic": topic, "partition": 1, "replicas": [1], "log_dirs": ["any"]},
    ]
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": parts}))
    named = ("--bootstrap-server", broker.bootstrap, "--reassignment-json-file", str(plan))
    told = tool_output("reassign-partitions", *named, "--execute",
                       "--replica-alter-log-dirs-throttle", "100000000")  # fmt: skip
    assert "Successfully started moving log directory" in told, told
    done = f"Reassignment of replica {topic}-0-1 completed successfully"
    wait_for(
        "the move is over",
        lambda: done in tool_output("reassign-partitions", *named, "--verify"),
        SLOW_S,
    )
    assert directories(broker, topic) == {first: [], str(second): [f"{topic}-0", f"{topic}-1"]}
