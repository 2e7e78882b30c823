"""One consumer of a group: tells on standard output what it reads, and commits what it has told.

Arguments: bootstrap server, topic, group, client id. Lines, flushed before the commit:

    assigned              partitions were given to it
    read P OFFSET C C C   flights that follow each other in partition P, each by its CRC-32

SIGTERM lets it leave the group; after SIGKILL the group waits until its session is over.
"""

from __future__ import annotations

import signal
import sys
import zlib
from itertools import groupby
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

BATCH_RECORDS_MAX = 500
SESSION_MS = 6000  # the shortest that brokers allow unless told (group.min.session.timeout.ms)


def tell(line: str) -> None:
    """One line, now."""
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def read(consumer: Consumer, messages: list[Any]) -> None:
    """Tells of records and commits them; a commit that comes too late is the next owner's to do."""
    following = {}
    for partition, found in groupby(messages, key=lambda message: message.partition()):
        records = list(found)
        sums = " ".join(str(zlib.crc32(record.value())) for record in records)
        tell(f"read {partition} {records[0].offset()} {sums}")
        following[partition] = records[-1].offset() + 1
    topic = messages[0].topic()
    offsets = [TopicPartition(topic, index, offset) for index, offset in following.items()]
    try:
        consumer.commit(offsets=offsets, asynchronous=False)
    except KafkaException as error:
        print(error.args[0].str(), file=sys.stderr)


def main() -> None:
    """Reads until told to leave."""
    bootstrap, topic, group, client_id = sys.argv[1:]
    stopping: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: stopping.append(number))
    signal.signal(signal.SIGINT, lambda number, _: stopping.append(number))
    consumer = Consumer({
        "bootstrap.servers": bootstrap,
        "group.id": group,
        "client.id": client_id,
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        "session.timeout.ms": SESSION_MS,
        "heartbeat.interval.ms": 1000,
        "partition.assignment.strategy": "range",
    })  # fmt: skip
    consumer.subscribe(
        [topic],
        on_assign=lambda _, __: tell("assigned"),
    )
    try:
        while not stopping:
            messages = consumer.consume(BATCH_RECORDS_MAX, timeout=0.2)
            records = [message for message in messages if message.error() is None]
            if records:
                read(consumer, records)
    except BrokenPipeError:  # nobody listens any more
        pass
    finally:
        consumer.close()


if __name__ == "__main__":
    main()
