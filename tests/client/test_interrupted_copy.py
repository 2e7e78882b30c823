"""Ctrl-C at many points of a copy of a topic: what was committed was written."""

from __future__ import annotations

import pytest

from kbroker.client import Consumer, Producer, TopicPartition
from tests.client.test_consumer import produce
from tests.support import wire
from tests.support.interruptions import interrupted
from tests.support.processes import BrokerProcess

COUNT = 60
POINTS = 60
LAST = 300  # points of Python code in which the two are closed


def run_copy(target: BrokerProcess, topic: str, at: int, how: str) -> None:
    """Copy the records of a topic to the at-th partition of another."""
    reading = {
        "bootstrap_servers": target.bootstrap, "group_id": f"{topic}-{at}",
        "auto_offset_reset": "earliest", "max_poll_records": 10,
        "auto_commit_interval_ms": 600_000,
    }  # fmt: skip
    writing = {"bootstrap_servers": target.bootstrap, "linger_ms": 60_000}
    with Consumer(reading) as consumer, Producer(writing) as producer:
        consumer.assign([(topic, 0)])
        copied = 0
        while copied < COUNT:
            for record in [next(consumer)] if how == "next" else consumer.poll(60):
                producer.send(f"{topic}-copy", record.value, partition=at)
                copied += 1


@pytest.mark.parametrize("how", ["next", "poll"])
def test_interrupted_copy_commits_what_it_wrote(
    target: BrokerProcess, topic: str, how: str
) -> None:
    """In each part of it, close() of the producer after a block that ended well among them."""
    wire.create_topic(target.port, topic, 1)
    wire.create_topic(target.port, f"{topic}-copy", POINTS + 1)
    produce(target.port, topic, COUNT)
    where = TopicPartition(topic, 0)
    with interrupted(1 << 40) as whole:
        run_copy(target, topic, POINTS, how)
    happened = 0
    for at in range(POINTS):
        part = whole.count if at % 2 else LAST  # the other half where both are closed
        with interrupted(1 + whole.count - part + part * at // POINTS) as interruption:
            run_copy(target, topic, at, how)
        happened += interruption.happened
    parts = [TopicPartition(f"{topic}-copy", at) for at in range(POINTS + 1)]
    lost = {}
    with Consumer(bootstrap_servers=target.bootstrap) as reader:
        ends = reader.end_offsets(parts)
    for at in range(POINTS + 1):
        with Consumer(bootstrap_servers=target.bootstrap, group_id=f"{topic}-{at}") as reader:
            committed = reader.committed([where])[where]
        if committed is not None and committed.offset > ends[parts[at]]:
            lost[at] = committed.offset, ends[parts[at]]
    assert not lost
    assert ends[parts[POINTS]] == COUNT and happened > POINTS // 2
