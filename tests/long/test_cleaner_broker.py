"""A broker that cleans while it is written, read, killed and started again."""

from __future__ import annotations

import contextlib
import random
import re
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kbroker.files import read_offset_checkpoint
from tests.support.kafka import dump_log
from tests.support.kbroker import KbrokerProcess
from tests.support.rounds import rounds
from tests.support.waits import wait_for

TOPIC = "compacted"
KEYS = 300
SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.min.cleanable.ratio": "0.01",
    "log.segment.delete.delay.ms": "1000",
    "log.retention.check.interval.ms": "1000",
    "offsets.retention.check.interval.ms": "600000",
}


def make_topic(port: int) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}"})
    settings = {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    made = admin.create_topics([NewTopic(TOPIC, 1, 1, config=settings)])
    made[TOPIC].result(20)


Acked = list[tuple[int, bytes, bytes | None]]


def size(folder: Path) -> int:
    """Bytes of the segments that are there now: the cleaner may take one away meanwhile."""
    found = 0
    for path in folder.glob("*.log"):
        with contextlib.suppress(FileNotFoundError):
            found += path.stat().st_size
    return found


def produce(port: int, dice: random.Random, count: int, acked: Acked, codec: str) -> None:
    """Keyed records; what is acknowledged goes to `acked` with its offset."""
    producer = Producer({"bootstrap.servers": f"127.0.0.1:{port}", "compression.type": codec,
                         "enable.idempotence": True, "linger.ms": 2})  # fmt: skip

    def told(error: object, message: object) -> None:
        if error is None:
            acked.append((message.offset(), message.key(), message.value()))  # type: ignore[attr-defined]

    for _ in range(count):
        key = b"key-%d" % dice.randrange(KEYS)
        value = None if dice.random() < 0.02 else dice.randbytes(400)
        producer.produce(TOPIC, key=key, value=value, on_delivery=told)
        producer.poll(0)
    producer.flush(30)


def consume(port: int) -> dict[bytes, bytes | None]:
    """The last value of each key, and offsets that only ascend."""
    consumer = Consumer({"bootstrap.servers": f"127.0.0.1:{port}", "group.id": "g",
                         "enable.auto.commit": False, "auto.offset.reset": "earliest",
                         "enable.partition.eof": True})  # fmt: skip
    last: dict[bytes, bytes | None] = {}
    at = -1
    try:
        consumer.assign([TopicPartition(TOPIC, 0, 0)])
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is None:
                continue
            if message.error():
                if message.error().code() == -191:  # the end of the partition
                    return last
                raise KafkaException(message.error())
            assert message.offset() > at
            at = message.offset()
            last[message.key()] = message.value()
    finally:
        consumer.close()
    raise AssertionError("the end of the partition did not come")


def expected(acked: Acked) -> dict[bytes, bytes]:
    last: dict[bytes, bytes | None] = {}
    for _, key, value in sorted(acked):
        last[key] = value
    return {key: value for key, value in last.items() if value is not None}


def live(found: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    return {key: value for key, value in found.items() if value is not None}


@pytest.mark.timeout(600)
@pytest.mark.parametrize("rounds", rounds(1, long=5, full=12))
def test_cleaned_killed_and_read(tmp_path: Path, rounds: int) -> None:
    dice = random.Random(7)
    broker = KbrokerProcess(tmp_path, SETTINGS)
    broker.start()
    acked: Acked = []
    folder = broker.data_dir / f"{TOPIC}-0"

    def clean_to() -> int:
        found = read_offset_checkpoint(broker.data_dir / "cleaner-offset-checkpoint")
        return found.get((TOPIC, 0), 0)

    try:
        make_topic(broker.port)
        for _ in range(rounds):
            before = clean_to()
            codec = dice.choice(("none", "lz4", "zstd", "gzip", "snappy"))
            produce(broker.port, dice, 9000, acked, codec)
            wait_for("the log cleaned", lambda before=before: clean_to() > before, 30)
            assert live(consume(broker.port)) == expected(acked)
            broker.kill()
            broker.start()
            assert live(consume(broker.port)) == expected(acked)
        wait_for("room made", lambda: size(folder) < 9000 * 400 * rounds, 60)
    finally:
        broker.stop()
    logs = sorted(folder.glob("*.log"))
    names = {path.name for path in folder.iterdir()}
    assert not {name for name in names if re.search(r"\.(cleaned|swap)$", name)}
    dump_log([*logs, *folder.glob("*.index"), *folder.glob("*.timeindex")], "--deep-iteration")
