"""A directory in which 1,000 groups have committed 1,000 offsets each, and how long it loads."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterable, Iterator

from kbroker.ext import records
from kbroker.ext.offsets_build import commit_key, commit_value
from kbroker.group.partition import group_partition
from perf import admin
from perf import group_wire as wire
from perf.filling import Filling
from tests.support.processes import BrokerProcess

OFFSETS_TOPIC, OFFSETS_PARTITIONS = "__consumer_offsets", 50
GROUPS, TOPICS, PARTITIONS = 1_000, 10, 100
COMMIT_PARTITIONS = 10  # of one commit, which is one batch
OFFSET_FETCH, OFFSET_FETCH_VERSION = 9, 5


def topic(number: int) -> str:
    return f"committed.topic.{number}"


def topics() -> dict[str, int]:
    """What the offsets are of: without its topic an offset is dropped when it was loaded."""
    return {topic(number): PARTITIONS for number in range(TOPICS)}


def group(number: int) -> str:
    return f"consumer-group-{number}"


def batches(name: str, now_ms: int) -> Iterator[bytes]:
    """A group's commits, each key once."""
    value = commit_value(123_456, 3, "", now_ms, -1, bytes(16), 4)
    keys = [
        commit_key(name, topic(number), partition)
        for number in range(TOPICS)
        for partition in range(PARTITIONS)
    ]
    for first in range(0, len(keys), COMMIT_PARTITIONS):
        yield records.build(
            [(now_ms, key, value) for key in keys[first : first + COMMIT_PARTITIONS]]
        )


def fill(process: BrokerProcess) -> None:
    """Write the commits into the directory of a broker that was stopped."""
    now_ms = int(time.time() * 1000)
    filling = Filling(process, OFFSETS_TOPIC)
    for number in range(GROUPS):
        partition = group_partition(group(number), OFFSETS_PARTITIONS)
        for batch in batches(group(number), now_ms):
            filling.append(partition, batch)
    filling.close()


def one_of_each_partition() -> Iterable[str]:
    """Groups whose coordinators are all there are."""
    return {group_partition(group(n), OFFSETS_PARTITIONS): group(n) for n in range(GROUPS)}.values()


def is_loading(sock: socket.socket, name: str) -> bool:
    """Whether the partition of a group is being read."""
    body = wire.text(name) + struct.pack(">i", 0)
    answer = admin.ask(sock, OFFSET_FETCH, OFFSET_FETCH_VERSION, body)
    (code,) = struct.unpack(">h", answer[-2:])
    if code not in {wire.NONE, *wire.NOT_YET}:
        raise RuntimeError(f"OffsetFetch: error {code}")
    return bool(code != wire.NONE)
