"""A sink's writer in a process of its own: python -m tests.client.preparing SERVERS TOPIC PROTOCOL

Sends a record to each of two partitions under the transactional id TOPIC, leaves the transaction
open, says as JSON how it is to be ended, and stands there until it is killed.
"""

from __future__ import annotations

import dataclasses
import json
import signal
import sys

import kbroker.client.transactions as room
from kbroker.client.producer import Producer

VALUES = (b"prepared 0", b"prepared 1")


def main(bootstrap: str, topic: str, protocol: str) -> None:
    """See the module."""
    if protocol == "1":
        room._VERSION_2 = 99  # type: ignore[misc]
    producer = Producer(bootstrap_servers=bootstrap, transactional_id=topic, linger_ms=0)
    producer.init_transactions(60)
    producer.begin()
    for partition, value in enumerate(VALUES):
        producer.send(topic, value, partition=partition)
    left = producer.leave_open(60)
    assert left is not None
    print(json.dumps(dataclasses.asdict(left)), flush=True)
    signal.pause()


if __name__ == "__main__":
    main(*sys.argv[1:])
