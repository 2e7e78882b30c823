"""The Java client of Kafka 4.3: idempotent producer with acks=all, assigned consumer."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from tests.clients.data import CODECS
from tests.support import wire
from tests.support.kafka import java, kafka_libs, log4j_config
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess

SOURCE = Path(__file__).with_name("java") / "RoundTrip.java"


@pytest.fixture(scope="session")
def classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled test programs."""
    compiler = need_command("javac", "openjdk-17-jdk-headless")
    folder = tmp_path_factory.mktemp("classes")
    command = [compiler, "-d", str(folder), "-cp", f"{kafka_libs()}/*", str(SOURCE)]
    subprocess.run(command, check=True, timeout=120)
    return folder


@pytest.mark.parametrize("codec", CODECS)
def test_round_trip(target: BrokerProcess, topic: str, classes: Path, codec: str) -> None:
    wire.create_topic(target.port, topic, 3)
    done = subprocess.run(
        [java(), f"-Dlog4j2.configurationFile={log4j_config()}",
         "-cp", f"{classes}:{kafka_libs()}/*", "RoundTrip",
         target.bootstrap, topic, "3", "5000", codec],
        check=False, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip() == "sent 5000 read 5000"
