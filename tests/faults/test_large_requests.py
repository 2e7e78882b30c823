"""Floods of the largest legal requests, beside which ordinary clients must be served."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.faults.test_disk import numbered
from tests.support import wire
from tests.support.largest import ELEMENTS_MAX, LARGEST, largest_frame
from tests.support.processes import BrokerProcess
from tests.support.wire import FIND_COORDINATOR, METADATA, PRODUCE, WireConnection
from tests.wire.test_classic_groups import Member
from tests.wire.test_connections import produce_body

LONG = pytest.mark.long
StartBroker = Callable[..., BrokerProcess]
OFFSET_COMMIT = 8
COORDINATOR_KEYS = {"key_type": 0, "coordinator_keys": ["g"]}
AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "delegation.token.secret.key": "secret",
}
#: Of an ordinary client beside the floods, with two processors for all of them.
P99_S, GAP_S = 0.2, 0.5
PRODUCES_A_SECOND = 200
#: Those whose work is the longest, or whose kind differs.
SHORT = (
    "DescribeGroups", "OffsetFetch", "CreateAcls", "DescribeConfigs", "DeleteTopics", "JoinGroup",
)  # fmt: skip


class Client(threading.Thread):
    """Sends one kind of request again and again, and keeps how long each answer took."""

    def __init__(self, name: str, request: Callable[[], object], pause_s: float) -> None:
        super().__init__(daemon=True, name=name)
        self._request = request
        self._pause_s = pause_s
        self.took_s: list[float] = []
        self.stopping = threading.Event()
        self.start()

    def run(self) -> None:
        while not self.stopping.wait(self._pause_s):
            begun = time.monotonic()
            self._request()
            self.took_s.append(time.monotonic() - begun)

    def finish(self) -> list[float]:
        """Stop; how long its answers took, in ascending order."""
        self.stopping.set()
        self.join(60)
        assert not self.is_alive(), f"{self.name} has no answer"
        return sorted(self.took_s)


class Clients:
    """The ordinary clients: metadata, heartbeats, commits, and a producer."""

    def __init__(self, broker: BrokerProcess) -> None:
        wire.create_topic(broker.port, "ordinary", 1)
        wire.call_once(broker.port, FIND_COORDINATOR, 4, COORDINATOR_KEYS)
        self.member = Member(broker, "ordinary", session_timeout=30_000).alone()
        connections = [WireConnection(broker.port) for _ in range(3)]
        self.connections = [self.member.connection, *connections]
        metadata, commits, produces = connections
        topics = {"topics": [{"name": "ordinary"}]}
        record = produce_body("ordinary", numbered(1))
        self.clients = [
            Client("Metadata", lambda: metadata.call(METADATA, 9, topics), 0.005),
            Client("Heartbeat", self._heartbeat, 0.02),
            Client("OffsetCommit", lambda: commits.call(OFFSET_COMMIT, 8, self._commit()), 0.005),
            Client("Produce", lambda: produces.call(PRODUCE, 9, record), 1 / PRODUCES_A_SECOND),
        ]

    def _heartbeat(self) -> None:
        assert self.member.heartbeat() == 0

    def _commit(self) -> dict[str, Any]:
        partition = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
        return {
            "group_id": "ordinary", "member_id": self.member.id,
            "generation_id_or_member_epoch": self.member.generation,
            "topics": [{"name": "ordinary", "partitions": [partition]}],
        }  # fmt: skip

    def finish(self) -> dict[str, tuple[int, float, float]]:
        """By kind: how many answers, the 99th of 100 and the longest (s)."""
        found = {}
        for client in self.clients:
            took_s = client.finish()
            found[client.name] = len(took_s), took_s[len(took_s) * 99 // 100], took_s[-1]
        for connection in self.connections:
            connection.close()
        return found


@pytest.fixture
def broker(start_kbroker: StartBroker) -> Iterator[BrokerProcess]:
    """A broker with an authorizer, so that each API does all of its work."""
    yield start_kbroker(AUTHORIZER)


def flood(broker: BrokerProcess, frames: list[bytes], rounds: int) -> None:
    """Send each request on a connection of its own, `rounds` times, and read the answers. The
    senders have less of the processors: it is the broker that is tried."""

    def send(frame: bytes) -> None:
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)
        with WireConnection(broker.port, timeout_s=300) as connection:
            for _ in range(rounds):
                connection.send_bytes(frame)
                connection.receive_frame()

    senders = [threading.Thread(target=send, args=(frame,)) for frame in frames]
    for sender in senders:
        sender.start()
    for sender in senders:
        sender.join(600)
        assert not sender.is_alive(), "a large request has no answer"


def check(figures: dict[str, tuple[int, float, float]]) -> None:
    for name, (count, p99_s, longest_s) in figures.items():
        assert count > 20, f"{name}: {count} answers"
        assert p99_s < P99_S and longest_s < GAP_S, f"{name}: {figures}"


@pytest.mark.timeout(300)
def test_ordinary_clients_are_served_beside_several_floods(broker: BrokerProcess) -> None:
    """Six kinds at once, each with a tenth of what a request may have."""
    frames = [largest_frame(name, ELEMENTS_MAX // 10) for name in SHORT]
    clients = Clients(broker)
    flood(broker, frames, rounds=1)
    check(clients.finish())
    assert broker.stop() == 0 and "not alive" not in broker.log_text()


@LONG
@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", LARGEST)
def test_ordinary_clients_are_served_beside_the_largest_request(
    broker: BrokerProcess, name: str
) -> None:
    frame = largest_frame(name)
    clients = Clients(broker)
    flood(broker, [frame], rounds=1)
    check(clients.finish())
    assert broker.stop() == 0 and "not alive" not in broker.log_text()
