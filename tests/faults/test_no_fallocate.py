"""Log directories on file systems without fallocate."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.needs import need_command
from tests.support.processes import BrokerProcess
from tests.support.waits import wait_for

SLOW_S = 60
RECORDS = 100


@pytest.fixture(params=["ext2", "ramfs"])
def ground(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of the kind."""
    place = tmp_path / "ground"
    place.mkdir()
    if request.param == "ramfs":
        command = ["mount", "-t", "ramfs", "ramfs", place]
    else:
        image = tmp_path / "image"
        with image.open("wb") as file:
            file.truncate(512 << 20)
        subprocess.run([need_command("mkfs.ext2", "e2fsprogs"), "-q", image], check=True)
        command = ["mount", "-t", "ext2", "-o", "loop", image, place]
    if subprocess.run(command, check=False).returncode:
        pytest.skip(f"no {request.param} can be mounted here")
    yield place
    # Lazily: a broker that a failed test has left running must not keep it mounted.
    subprocess.run(["umount", "--lazy", place], check=True)


@pytest.mark.parametrize("durability", ["fsync", "page-cache"])
def test_acknowledged_records_are_there_after_a_kill(
    start_kbroker: Callable[..., BrokerProcess], ground: Path, topic: str, durability: str
) -> None:
    settings = {
        "kbroker.durability": durability,
        "kbroker.journal.bytes.max": "16777216",
        "kbroker.journal.buffer.bytes": "1048576",
    }
    broker = start_kbroker(settings, data_dir=ground / "data")
    wire.create_topic(broker.port, topic, 1, {"index.interval.bytes": "100"})
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number).result(SLOW_S)
    broker.kill()
    broker.start()
    found: list[bytes | None] = []
    with Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])

        def all_read() -> bool:
            found.extend(record.value for record in consumer.poll(1.0))
            return len(found) >= RECORDS

        wait_for("all records are read", all_read, SLOW_S)
    assert found == [b"%d" % number for number in range(RECORDS)]
    broker.stop()
