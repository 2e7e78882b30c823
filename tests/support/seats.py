"""Members of a group without a fetcher: what a consumer owns and has read is told by the test."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from kbroker.client.cluster import Cluster
from kbroker.client.config import consumer_config
from kbroker.client.group import ClusterBrokers, Group, RebalanceListener
from kbroker.client.partitions import OffsetAndMetadata, TopicPartition
from kbroker.ext.client_heartbeat import EVENT_HEARTBEAT, HeartbeatDriver
from kbroker.ext.client_loop import ClientLoop

EVENT_CLOSED = 0


class Seat(RebalanceListener):
    """A host of a group: remembers what it is told. story: (what, partitions) in order."""

    def __init__(self, bootstrap: str, group_id: str, **settings: Any) -> None:
        given = {"bootstrap_servers": bootstrap, "group_id": group_id, "retry_backoff_ms": 20}
        self.config = consumer_config({**given, **settings}, {})
        self.cluster = Cluster.of(self.config)
        self.owned: frozenset[TopicPartition] = frozenset()
        self.stopped: set[TopicPartition] = set()
        self.read: dict[TopicPartition, OffsetAndMetadata] = {}
        self.story: list[tuple[str, frozenset[TopicPartition]]] = []
        self.woken = threading.Event()
        self.heartbeat = HeartbeatDriver()
        self.loop = ClientLoop(self.heartbeat)
        self.loop.start()
        self.events = threading.Thread(target=self.control, daemon=True)
        self.events.start()
        brokers = ClusterBrokers(self.cluster, self.loop)
        self.group = Group(self.config, brokers, self, heartbeat=self.heartbeat)

    def control(self) -> None:
        """What a consumer's control thread does for its group."""
        while True:
            for kind, *_ in self.loop.events(1.0):
                if kind == EVENT_CLOSED:
                    return
                if kind == EVENT_HEARTBEAT:
                    self.group.on_event()

    # what the group asks of its host

    def assigned(self) -> frozenset[TopicPartition]:
        return self.owned

    def assign_from_group(self, partitions: Collection[TopicPartition]) -> None:
        self.owned = frozenset(partitions)
        self.stopped.clear()
        self.read = {one: told for one, told in self.read.items() if one in self.owned}

    def stop_fetching(self, partitions: Collection[TopicPartition]) -> None:
        self.stopped |= set(partitions)

    def delivered(self) -> Mapping[TopicPartition, OffsetAndMetadata]:
        return self.read

    def wake(self) -> None:
        self.woken.set()

    # what it hears as a listener

    def on_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("assigned", frozenset(partitions)))

    def on_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("revoked", frozenset(partitions)))

    def on_lost(self, partitions: Collection[TopicPartition]) -> None:
        self.story.append(("lost", frozenset(partitions)))

    # what tests do with it

    def poll(self) -> None:
        """What a consumer does: asks the group, waits until it is woken or something is due."""
        due_s = self.group.poll()
        self.woken.wait(min(due_s, 0.02))
        self.woken.clear()

    def end(self) -> None:
        try:
            self.group.close(5.0, offsets=self.read)
        finally:
            self.loop.close()
            self.events.join(5.0)
            self.cluster.close()


def poll_until(condition: Any, *seats: Seat, timeout_s: float = 30.0) -> None:
    """Polls all in turn until the condition holds."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, [(one.owned, one.story) for one in seats]
        for one in seats:
            one.poll()


def settle(*seats: Seat) -> None:
    """Polls until all are in the same generation and have what it gives them."""
    poll_until(
        lambda: (
            all(one.group.settled for one in seats)
            and len({one.group.metadata().generation for one in seats}) == 1
        ),
        *seats,
    )


def share(*seats: Seat) -> list[int]:
    """How many partitions each owns."""
    return sorted(len(one.owned) for one in seats)


@contextlib.contextmanager
def seated(*seats: Seat) -> Iterator[None]:
    """Ends them whatever comes."""
    try:
        yield
    finally:
        for one in seats:
            with contextlib.suppress(Exception):
                one.end()
