"""A cluster as a client sees it: bootstrap addresses, brokers, topics and their leaders.

Not thread-safe. Connections are opened when first needed and kept; a broken one is opened anew at
the next use. Metadata is asked for per topic and kept until `refresh` or a failure drops it.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from kbroker.client.address import Address, parse_address
from kbroker.client.connection import Connection
from kbroker.client.errors import BrokerError, ConnectError, KafkaError, check
from kbroker.protocol import ApiKey

__all__ = ["Cluster", "Node", "PartitionInfo", "TopicInfo"]

T = TypeVar("T")

_RETRY_PAUSE_S = 0.1
_UNKNOWN_TOPIC_S = 3.0  # a topic that brokers do not know for so long is not there
_LEADER_NOT_AVAILABLE = 5
_UNKNOWN_TOPIC_OR_PARTITION = 3


@dataclass(frozen=True, slots=True)
class Node:
    """A broker of the cluster at the address it advertises."""

    node_id: int
    address: Address
    rack: str | None


@dataclass(frozen=True, slots=True)
class PartitionInfo:
    """Where a partition lives; leader -1: none now."""

    index: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    offline: tuple[int, ...]
    error_code: int


@dataclass(frozen=True, slots=True)
class TopicInfo:
    """A topic with its partitions in order of their index. topic_id: zero before metadata v10."""

    name: str
    topic_id: uuid.UUID
    internal: bool
    partitions: tuple[PartitionInfo, ...]


class Cluster:
    """The way to a cluster, from one or more bootstrap addresses.

    bootstrap: comma-separated `HOST:PORT`. Raises ValueError for an address that is none. No
    connection is made before the first call that needs one. timeout_s: per answer.
    """

    def __init__(
        self, bootstrap: str, *, client_id: str = "kbroker", timeout_s: float = 30.0
    ) -> None:
        self._bootstrap = [parse_address(part) for part in bootstrap.split(",") if part.strip()]
        if not self._bootstrap:
            raise ValueError("no bootstrap server given; write HOST:PORT")
        self.client_id = client_id
        self.timeout_s = timeout_s
        self.cluster_id: str | None = None
        self.controller_id = -1
        self.nodes: dict[int, Node] = {}
        self._topics: dict[str, TopicInfo] = {}
        self._connections: dict[Address, Connection] = {}

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes every connection."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def any_connection(self) -> Connection:
        """A connection to some broker: a live one, else the first address that answers."""
        for connection in self._connections.values():
            if not connection.closed:
                return connection
        known = [node.address for node in self.nodes.values()]
        failure: KafkaError | None = None
        for address in dict.fromkeys([*self._bootstrap, *known]):
            try:
                return self._open(address)
            except ConnectError as error:
                failure = failure or error
        assert failure is not None
        raise failure

    def connection(self, node_id: int) -> Connection:
        """A connection to this broker."""
        if node_id not in self.nodes:
            self.refresh([])
        node = self.nodes.get(node_id)
        if node is None:
            raise KafkaError(f"broker {node_id} is not known to the cluster")
        try:
            return self._open(node.address)
        except ConnectError as error:
            if node.address in self._bootstrap:
                raise
            raise ConnectError(f"{error} (the broker advertises this address)") from error

    def controller(self) -> Connection:
        """A connection for admin requests: the controller as metadata names it, else any."""
        if self.controller_id not in self.nodes:
            self.refresh([])
        if self.controller_id in self.nodes:
            return self.connection(self.controller_id)
        return self.any_connection()

    def topics(self, *, internal: bool = True) -> list[TopicInfo]:
        """All topics, by name."""
        found = self._metadata(None, create=False)
        return sorted(
            (topic for topic in found.values() if internal or not topic.internal),
            key=lambda topic: topic.name,
        )

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """One topic, from what is known or from the broker.

        create: let the broker create it where it is configured to (auto.create.topics.enable).
        Raises BrokerError UNKNOWN_TOPIC_OR_PARTITION and the like.
        """
        if name not in self._topics:
            self.refresh([name], create=create)
        return self._topics[name]

    def refresh(self, names: Iterable[str], *, create: bool = False) -> None:
        """Asks the cluster anew for brokers and these topics; waits for leaders being elected."""
        wanted = list(names)
        deadline = time.monotonic() + self.timeout_s
        while True:
            try:
                self._metadata(wanted, create=create)
            except BrokerError as error:
                passing = error.code == _LEADER_NOT_AVAILABLE or (
                    create and error.code == _UNKNOWN_TOPIC_OR_PARTITION
                )
                if not passing or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_PAUSE_S)
            else:
                return

    def forget(self, name: str) -> None:
        """Drops what is known of a topic, so that the next use asks again."""
        self._topics.pop(name, None)

    def retry(self, call: Callable[[], T]) -> T:
        """Runs a call again while it fails in a way that passes, within timeout_s; for a topic
        that is not known, no longer than one that was just created needs to get about."""
        deadline = time.monotonic() + self.timeout_s
        unknown_deadline: float | None = None
        while True:
            try:
                return call()
            except KafkaError as error:
                now = time.monotonic()
                refused = isinstance(error, ConnectError) and not self.nodes
                if not error.retriable or refused or now > deadline:
                    raise
                if isinstance(error, BrokerError) and error.code == _UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_deadline = unknown_deadline or now + _UNKNOWN_TOPIC_S
                    if now > unknown_deadline:
                        raise
                else:
                    unknown_deadline = None
                time.sleep(_RETRY_PAUSE_S)

    def _open(self, address: Address) -> Connection:
        live = self._connections.get(address)
        if live is None or live.closed:
            live = Connection(address, client_id=self.client_id, timeout_s=self.timeout_s)
            self._connections[address] = live
        return live

    def _metadata(self, names: list[str] | None, *, create: bool) -> dict[str, TopicInfo]:
        wanted = None if names is None else [{"name": name} for name in names]
        body = self.any_connection().call(
            ApiKey.METADATA, {"topics": wanted, "allow_auto_topic_creation": create}
        )
        self.cluster_id = body.cluster_id
        self.controller_id = int(body.controller_id)
        self.nodes = {
            int(node.node_id): Node(
                int(node.node_id), Address(node.host, int(node.port)), node.rack
            )
            for node in body.brokers
        }
        for topic in body.topics:
            self._topics.pop(topic.name, None)
            if names is not None:
                check(topic.error_code, f"topic {topic.name!r}")
        found = {topic.name: _topic_info(topic) for topic in body.topics if topic.error_code == 0}
        self._topics.update(found)
        return found


def _topic_info(topic: Any) -> TopicInfo:
    partitions = (
        PartitionInfo(
            index=int(part.partition_index),
            leader=int(part.leader_id),
            leader_epoch=int(part.leader_epoch),
            replicas=tuple(int(node) for node in part.replica_nodes),
            isr=tuple(int(node) for node in part.isr_nodes),
            offline=tuple(int(node) for node in part.offline_replicas),
            error_code=int(part.error_code),
        )
        for part in topic.partitions
    )
    return TopicInfo(
        name=topic.name,
        topic_id=getattr(topic, "topic_id", None) or uuid.UUID(int=0),
        internal=topic.is_internal,
        partitions=tuple(sorted(partitions, key=lambda part: part.index)),
    )
