"""The Java client of Kafka 4.3: idempotent producer with acks=all, assigned consumer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.data import CODECS
from tests.support import wire
from tests.support.java import java_command
from tests.support.processes import BrokerProcess


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(target: BrokerProcess, topic: str, classes: Path, codec: str) -> None:
    wire.create_topic(target.port, topic, 3)
    done = subprocess.run(
        java_command("RoundTrip", target.bootstrap, topic, "3", "5000", codec, classes=classes),
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "sent 5000 read 5000"
