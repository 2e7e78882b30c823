"""A log that the disk denies at the start after a crash: what only the journal has is kept."""

from __future__ import annotations

import subprocess
from collections.abc import Callable

from kbroker.client import Consumer, Producer, TopicPartition
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.processes import BrokerProcess

SLOW_S = 60


def test_the_journal_is_kept_for_a_log_that_cannot_be_opened(
    start_kbroker: Callable[..., BrokerProcess], topic: str
) -> None:
    broker = start_kbroker()
    assert isinstance(broker, KbrokerProcess)
    wire.create_topic(broker.port, topic, 1)
    with Producer(bootstrap_servers=broker.bootstrap) as producer:
        for value in (b"a", b"b", b"c"):
            producer.send(topic, value).result(SLOW_S)
    broker.kill()
    folder = broker.data_dir / f"{topic}-0"
    for segment in folder.glob("*.log"):
        segment.write_bytes(b"")  # a power cut has taken what was not synced
    epochs = folder / "leader-epoch-checkpoint"
    epochs.unlink(missing_ok=True)
    epochs.mkdir()
    denied = subprocess.run(
        broker.command(), env=broker.environment(), capture_output=True, text=True,
        timeout=SLOW_S, check=False,
    )  # fmt: skip
    assert denied.returncode == 1, denied
    assert f"{topic}-0 cannot be opened" in denied.stderr, denied
    epochs.rmdir()
    broker.start()
    with Consumer(bootstrap_servers=broker.bootstrap) as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        consumer.seek_to_beginning()
        found: list[bytes] = []
        while len(found) < 3:
            found += [one.value for one in consumer.poll(10.0)]
    assert found == [b"a", b"b", b"c"]
