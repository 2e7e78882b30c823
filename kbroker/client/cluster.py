"""A cluster as a client sees it: bootstrap addresses, brokers, topics and their leaders.

Thread-safe. Metadata is a value that is replaced (`metadata`), under one lock that is never held
over I/O or a callback. Connections belong to the thread that uses them: `connection` opens one
for the calling thread when it is first needed and keeps it for that thread, so nobody waits for
another's answers; they are closed with the thread or the cluster. `open` makes one that the
caller owns, to hand to a native loop.

A connection that broke, was idle for too long or whose SASL session nears its end is opened anew
at the next use. Metadata is asked for per topic and kept until `metadata.max.age.ms`, `refresh` or
`forget`. Where no known broker answers, the bootstrap addresses are used again (KIP-899, KIP-1102).
"""

from __future__ import annotations

import logging
import os
import random
import re
import uuid
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from kbroker.client.address import Address
from kbroker.client.connection import Connection
from kbroker.client.connector import Connector
from kbroker.client.errors import (
    BrokerError,
    ClosedError,
    ConfigError,
    ConnectError,
    ForkError,
    KafkaError,
    check,
)
from kbroker.client.metadata import Leader, Metadata, Node, PartitionInfo, TopicInfo
from kbroker.client.native_threads import Lock, per_thread
from kbroker.client.reach import (
    BROKEN,
    COUNTS,
    ClusterSettings,
    FinalFailure,
    Limits,
    Own,
    PassingFailure,
    Reach,
    bootstrap_addresses,
    growing,
)
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_flag import Count, Flag
from kbroker.protocol import ApiKey

if TYPE_CHECKING:
    from kbroker.client.config_common import ClientConfig

__all__ = ["Cluster", "Leader", "Metadata", "Node", "PartitionInfo", "TopicInfo"]

T = TypeVar("T")

_UNKNOWN_TOPIC_S = 3.0  # a topic that brokers do not know for so long is not there

_log = logging.getLogger("kbroker.client.cluster")


class Cluster:
    """The way to a cluster, from one or more bootstrap addresses.

    bootstrap: `HOST:PORT`, several with commas or as a list. Raises ValueError for an address that
    is none. No connection is made before the first call that needs one. timeout_s: per answer."""

    def __init__(
        self,
        bootstrap: str | Iterable[str],
        *,
        client_id: str = "kbroker",
        timeout_s: float = 30.0,
        settings: ClusterSettings | None = None,
    ) -> None:
        self.settings = settings or ClusterSettings(
            client_id, timeout_s, timeout_s,
            setup_timeout_s=timeout_s, setup_timeout_max_s=timeout_s,
        )  # fmt: skip
        servers = bootstrap.split(",") if isinstance(bootstrap, str) else bootstrap
        self._bootstrap = bootstrap_addresses(servers, canonical=self.settings.canonical_names)
        self.client_id = self.settings.client_id
        self.timeout_s = self.settings.timeout_s
        self._lock = Lock()  # guards what follows; nothing is waited for under it
        self._metadata = Metadata()
        self._learnt_s: dict[str, float] = {}
        self._failing_since_s: float | None = None
        self._was_told = False  # True once a broker has answered for metadata
        self._doubted: set[int] = set()  # nodes that may have moved
        self._counts = dict.fromkeys(COUNTS, 0.0)
        self._open: weakref.WeakSet[Connection] = weakref.WeakSet()
        self._own = per_thread(Own)
        self.limits = per_thread(Limits)
        self.calls = Count(ClosedError)  # of all threads, so that an end can wait for them
        self.closed = Flag()
        self._reach = Reach(self.settings)
        self._connector = Connector(self._reach, self.limits, self.closed)
        self._pid = os.getpid()

    @classmethod
    def of(cls, config: ClientConfig, bootstrap: Iterable[str] | None = None) -> Cluster:
        """The way to the cluster that a client is configured for."""
        servers = bootstrap or config.bootstrap_servers
        try:
            return cls(servers, settings=ClusterSettings.of(config))
        except ConfigError:
            raise
        except ValueError as error:
            which = "servers" if servers is config.bootstrap_servers else "controllers"
            raise ConfigError(f"bootstrap.{which}: {error}") from None

    def __enter__(self) -> Cluster:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Closes this thread's connections and ends those of others; threads that wait for an
        answer get ClosedError."""
        self.closed.set()
        if os.getpid() != self._pid:
            return
        mine = self._own.connections
        self._open = weakref.WeakSet()
        self._connector.interrupt(mine.values())
        for connection in mine.values():
            connection.close()
        mine.clear()

    # What is known

    @property
    def metadata(self) -> Metadata:
        """What is known now; a value that does not change."""
        return self._metadata

    @property
    def cluster_id(self) -> str | None:
        """The cluster's id, None before the first answer."""
        return self._metadata.cluster_id

    @property
    def controller_id(self) -> int:
        """The node for admin requests, -1 where it is not known."""
        return self._metadata.controller_id

    @property
    def nodes(self) -> Mapping[int, Node]:
        """The brokers by their ids; empty before the first answer."""
        return self._metadata.nodes

    def topics(self, *, internal: bool = True) -> list[TopicInfo]:
        """All topics, by name."""
        infos = [info for info in self.describe(None).values() if isinstance(info, TopicInfo)]
        return sorted((i for i in infos if internal or not i.internal), key=lambda info: info.name)

    def topics_matching(
        self, pattern: re.Pattern[str], *, internal: bool = False
    ) -> list[TopicInfo]:
        """All topics whose whole names match, by name."""
        return [info for info in self.topics(internal=internal) if pattern.fullmatch(info.name)]

    def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """One topic, from what is known or from the broker. create: let the broker create it where
        it is configured to (auto.create.topics.enable). Raises BrokerError."""
        known = self._metadata.topics.get(name)
        if known is not None and not self.is_old(name):
            return known
        if known is not None and name in self._learnt_s:  # older than metadata.max.age.ms, no more
            try:
                told = self._ask([name], create=False).get(name)
            except BROKEN:
                return known  # nobody answers; it may still be right
            if isinstance(told, TopicInfo):
                return told
        return self._described([name], create=create)[name]

    def topics_of(
        self, names: Iterable[str], *, create: bool = False
    ) -> dict[str, TopicInfo | KafkaError]:
        """Return each of these as `topic` does, or its error. One request asks for all that are
        not known."""
        every = {name: self._metadata.topics.get(name) for name in names}
        old = [name for name, known in every.items() if known is None or self.is_old(name)]
        told: Mapping[str, TopicInfo | KafkaError] = {}
        try:
            if old:
                told = self.describe(old, create=create)
        except KafkaError as error:
            kept = self._learnt_s if isinstance(error, BROKEN) else {}
            told = {name: (every[name] if name in kept else None) or error for name in old}
        none = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        known = every.items()
        return {name: told.get(name) or info or BrokerError(none, name) for name, info in known}

    def topic_of_id(self, topic_id: uuid.UUID) -> TopicInfo | None:
        """The topic of this id, from what is known or from a broker; None: there is none."""
        if self._metadata.topic_of_id(topic_id) is None:
            self.describe(None)
        return self._metadata.topic_of_id(topic_id)

    def is_old(self, name: str) -> bool:
        """True where a topic was never asked for, or longer ago than metadata.max.age.ms."""
        learnt_s = self._learnt_s.get(name)
        return learnt_s is None or monotonic() - learnt_s > self.settings.metadata_max_age_s

    def refresh(self, names: Iterable[str], *, create: bool = False) -> None:
        """Asks the cluster anew for brokers and these topics; waits for leaders being elected.
        Raises BrokerError for the first topic that cannot be told of."""
        self._described(list(names), create=create)

    def _described(self, names: list[str], *, create: bool) -> dict[str, TopicInfo]:
        known = self._metadata.topics

        def attempt() -> dict[str, TopicInfo]:
            found = self._ask(names, create=create)
            for name, told in found.items():
                if isinstance(told, BrokerError):
                    unknown = told.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    if unknown and name in known and not create:
                        raise told  # a broker that has just started may not have heard of it
                    passing = told.code == ErrorCode.LEADER_NOT_AVAILABLE or (unknown and create)
                    raise PassingFailure(told) if passing else FinalFailure(told)
            return {name: info for name, info in found.items() if isinstance(info, TopicInfo)}

        try:
            return self.retry(attempt)
        except (PassingFailure, FinalFailure) as error:
            raise error.told from None

    def describe(
        self, names: Iterable[str] | None, *, create: bool = False
    ) -> dict[str, TopicInfo | BrokerError]:
        """Asks anew for these topics, None: all; for each what it is, or the error."""
        wanted = None if names is None else list(names)
        return self.retry(lambda: self._ask(wanted, create=create))

    def forget(self, name: str) -> None:
        """Drops what is known of a topic, so that the next use asks again. Its leader epochs are
        kept until then, so that an older answer cannot bring an older leader back."""
        with self._lock:
            self._learnt_s.pop(name, None)

    def learn_leaders(self, leaders: Iterable[Leader], nodes: Iterable[Node] = ()) -> None:
        """Takes over leaders as the answer to a produce or fetch told them."""
        with self._lock:
            self._metadata = self._metadata.after_leaders(leaders, nodes)

    # Connections

    def any_connection(self) -> Connection:
        """A connection of this thread to some broker: a live one, else the first that answers."""
        for address in list(self._mine()):
            live = self._live(address)
            if live is not None and self._reach.failures(address) == 0:
                return live
        known = [node.address for node in self.nodes.values()]
        random.shuffle(known)
        failure: KafkaError | None = None
        for address in sorted(known, key=self._reach.failures):
            try:
                return self._link(address)
            except BROKEN as error:
                failure = self._first(failure, error)
        if failure is not None and not self.settings.rebootstraps:
            raise failure
        if known:
            self.rebootstrap("no known broker can be reached")
        for address in self._bootstrap:
            try:
                return self._link(address)
            except BROKEN as error:
                failure = self._first(failure, error)
        assert failure is not None
        raise failure

    def _first(self, failure: KafkaError | None, error: KafkaError) -> KafkaError:
        """Of several; raised where there is no time for another attempt."""
        failure = failure or error
        if self.limits.are_over:
            raise failure
        return failure

    def connection(self, node_id: int) -> Connection:
        """A connection of this thread to this broker."""
        return self._at_node(node_id, self._link)

    def open(self, node_id: int, *, wait: bool = True) -> Connection:
        """A fresh connection to this broker, authenticated, that belongs to the caller.

        It is to be replaced before its `renew_at` (monotonic) comes. In the pause after an attempt
        that failed it waits, or raises ConnectError; RequestTimeoutError, AuthenticationError.
        """
        return self._at_node(node_id, self._connect if wait else self._connect_now)

    def _at_node(self, node_id: int, connect: Callable[[Address], Connection]) -> Connection:
        if node_id not in self.nodes or node_id in self._doubted:
            self._doubted.discard(node_id)
            self.refresh([])
        node = self.nodes.get(node_id)
        if node is None:
            error = ConnectError(f"broker {node_id} is not known to the cluster")
            error.retriable = self.settings.patient  # it may be on its way back
            raise error
        try:
            return connect(node.address)
        except ConnectError as error:
            self._doubted.add(node_id)
            if node.address in self._bootstrap:
                raise
            told = type(error)(f"{error} (the broker advertises this address)")
            raise told from error

    def controller(self) -> Connection:
        """A connection for admin requests: the controller as metadata names it, else any."""
        if self.controller_id not in self.nodes:
            self.refresh([])
        if self.controller_id in self.nodes:
            return self.connection(self.controller_id)
        return self.any_connection()

    def rebootstrap(self, why: str) -> None:
        """Forgets the brokers, so that the next metadata come by the bootstrap addresses."""
        _log.warning("bootstrapping again: %s", why)
        with self._lock:
            self._metadata = Metadata(self._metadata.cluster_id, topics=self._metadata.topics)
            self._learnt_s.clear()
            self._failing_since_s = None
            self._counts["rebootstrap-total"] += 1
        for connection in self._mine().values():
            connection.close()

    def _mine(self) -> dict[Address, Connection]:
        if self.closed.is_set():
            raise ClosedError("the client was closed")
        if os.getpid() != self._pid:
            raise ForkError("this client was made before fork(); make a new one in the child")
        return self._own.connections

    def _live(self, address: Address) -> Connection | None:
        """This thread's connection to an address, if it can be used."""
        mine = self._mine()
        found = mine.get(address)
        if found is None:
            return None
        if found.idle_s > self.settings.idle_max_s or monotonic() >= found.renew_at:
            found.close()
        if found.closed:
            found.close()  # the socket as well, where another thread has ended it
            del mine[address]
            return None
        return found

    def drop_idle(self) -> None:
        """Ends connections of all threads that were not used for connections.max.idle.ms; who owns
        one finds that out before it uses it again. Any thread, from time to time."""
        with self._lock:
            every = list(self._open)
        for connection in every:
            connection.end_if_idle(self.settings.idle_max_s)

    def _link(self, address: Address) -> Connection:
        live = self._live(address)
        if live is None:
            live = self._mine()[address] = self._connect(address)
            with self._lock:
                self._open.add(live)
            if self.closed.is_set():  # between the last look and this one
                live.close()
        return live

    def doubt(self, node_id: int) -> None:
        """An answer of this broker did not come: others are asked first, as long as it is not
        connected to anew."""
        node = self.nodes.get(node_id)
        if node is not None:
            self._reach.failed(node.address)

    def _connect(self, address: Address) -> Connection:
        self._mine()
        return self._connector.connect(address)

    def _connect_now(self, address: Address) -> Connection:
        self._mine()
        return self._connector.connect_now(address)

    # Trying again

    def retry(
        self, call: Callable[[], T], timeout_s: float | None = None, ends: bool | None = None
    ) -> T:
        """Runs a call again while it fails in a way that passes, within call_timeout_s; for a topic
        that is not known, no longer than one that was just created needs to get about. Within
        another call's retry its limit holds. ends: each attempt, too, unless it is one alone (0 s).
        """
        limits = self.limits
        if limits.deadline_s is not None:
            return self._retry(call, limits.deadline_s)
        limit_s = self.settings.call_timeout_s if timeout_s is None else timeout_s
        with self.calls:
            ends = limit_s > 0 if ends is None else ends
            return limits.run(limit_s, ends, lambda deadline_s: self._retry(call, deadline_s))

    def _retry(self, call: Callable[[], T], deadline_s: float) -> T:
        unknown_deadline_s: float | None = None
        failures = 0
        while True:
            try:
                return call()
            except KafkaError as error:
                now = monotonic()
                refused = isinstance(error, BROKEN) and not self._was_told
                if not error.retriable or (refused and not self.settings.patient):
                    raise
                if error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    unknown_deadline_s = unknown_deadline_s or now + _UNKNOWN_TOPIC_S
                    if now > unknown_deadline_s:
                        raise
                else:
                    unknown_deadline_s = None
                failures += 1
                pause_s = self.pause_s(failures)
                if now + pause_s > deadline_s:
                    raise
                self._count("request-retry-total")
            if self.closed.wait(pause_s):
                raise ClosedError("the client was closed")

    def metrics(self) -> dict[str, float]:
        """Counts since it was made, and what holds now; names as Kafka's clients have."""
        with self._lock:
            live = sum(not connection.closed for connection in self._open)
            age_s = monotonic() - max(self._learnt_s.values(), default=monotonic())
            counts = self._counts | self._connector.counts
            return counts | {"connection-count": live, "metadata-age": age_s}

    def _count(self, name: str) -> None:
        with self._lock:
            self._counts[name] += 1

    def pause_s(self, failures: int) -> float:
        """How long to wait before a request that failed so often is sent again."""
        return growing(self.settings.retry_backoff_s, self.settings.retry_backoff_max_s, failures)

    # Metadata

    def _ask(self, names: list[str] | None, *, create: bool) -> dict[str, TopicInfo | BrokerError]:
        wanted = None if names is None else [{"name": name} for name in names]
        values = {"topics": wanted, "allow_auto_topic_creation": create}
        self._count("metadata-request-total")
        try:
            others_s = self.settings.setup_timeout_s if len(self.nodes) > 1 else float("inf")
            limit_s = min(self.timeout_s, others_s)  # others may answer sooner
            body = self.any_connection().call(ApiKey.METADATA, values, timeout_s=limit_s)
            code = int(getattr(body, "error_code", 0))
            if code == ErrorCode.REBOOTSTRAP_REQUIRED:
                self.rebootstrap("a broker demands it")
                raise ConnectError("the brokers known demand to bootstrap again")
            check(code, "metadata")
        except KafkaError:
            self._note_failure()
            raise
        now = monotonic()
        with self._lock:
            self._failing_since_s = None
            self._was_told = True
            self._metadata = self._metadata.after_answer(body)
            if names is None:
                self._learnt_s.clear()
            for topic in body.topics:
                self._learnt_s.pop(topic.name, None)
                if topic.error_code == 0:
                    self._learnt_s[topic.name] = now
            known = self._metadata.topics
        return {
            topic.name: known[topic.name]
            if topic.error_code == 0
            else BrokerError(int(topic.error_code), f"topic {topic.name!r}")
            for topic in body.topics
        }

    def _note_failure(self) -> None:
        """Metadata could not be had: after rebootstrap_trigger_s of that, the brokers known are
        given up."""
        now = monotonic()
        with self._lock:
            since_s = self._failing_since_s = self._failing_since_s or now
        over = now - since_s > self.settings.rebootstrap_trigger_s
        if over and self.settings.rebootstraps and self.nodes:
            self.rebootstrap("no metadata for metadata.recovery.rebootstrap.trigger.ms")
