"""Topics as a group needs them: partitions with the racks of their replicas, ids, names.

Asked of the coordinator's broker, anew after `metadata.max.age.ms`, and sooner while a topic that
is wanted is missing. Belongs to the polling thread.
"""

from __future__ import annotations

import logging
import math
import uuid
from collections.abc import Callable, Collection, Iterable
from typing import Any, NamedTuple

from kbroker.client.errors import BrokerError, KafkaError
from kbroker.client.group.wire import Wire
from kbroker.errors import ErrorCode
from kbroker.protocol import ApiKey

__all__ = ["Shape", "TopicsWatch"]

_log = logging.getLogger("kbroker.client.group")
_TOLD = frozenset({ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})


class Shape(NamedTuple):
    """Of each partition the racks of its replicas."""

    topic_id: uuid.UUID | None
    internal: bool
    racks: tuple[frozenset[str], ...]


class TopicsWatch:
    """Knows the topics of a set of names, or all.

    known: those that exist. version: how often they were asked for. failure: what the application
    has to be told of, such as a topic that it may not read.
    """

    def __init__(
        self, wire: Wire, *, max_age_s: float, retry_s: tuple[float, float], create: bool
    ) -> None:
        self.known: dict[str, Shape] = {}
        self.version = 0
        self.failure: KafkaError | None = None
        self._wire = wire
        self._max_age_s = max_age_s
        self._retry_s = retry_s
        self._pause_s = retry_s[0]
        self._create = create
        self._wanted: frozenset[str] | None = frozenset()
        self._asking = False
        self._due = math.inf
        self._waiting: list[Callable[[], None]] = []
        self._warned: set[str] = set()

    def want(self, names: frozenset[str] | None) -> bool:
        """These from now on, None: all. True: they are not known yet, `after` tells when."""
        if names == self._wanted:
            return self.version == 0 and names != frozenset()
        fewer = names is not None and self._wanted is not None and names <= self._wanted
        self._wanted = names
        if names == frozenset():
            self._due = math.inf
        elif not fewer:
            self._due = 0.0
        return not fewer

    def forget(self) -> None:
        """The group has ended: nothing is to be called any more."""
        self._waiting.clear()

    def begin_anew(self) -> None:
        """Ask anew at the next poll: an answer may have been lost."""
        self._asking = False
        self._waiting = []
        if self._wanted != frozenset():
            self._due = 0.0

    def after(self, done: Callable[[], None]) -> None:
        """Calls `done` when what is wanted was asked for anew."""
        self._waiting.append(done)
        self._due = 0.0

    def poll(self, now: float) -> float:
        """Asks when it is time to; seconds until then."""
        if self.failure is not None:
            failure, self.failure = self.failure, None
            raise failure
        if self._asking or self._due == math.inf:
            return math.inf
        if now < self._due:
            return self._due - now
        self._ask(now)
        return math.inf

    def _ask(self, now: float) -> None:
        self._asking = True
        self._due = now + self._max_age_s
        waiting, self._waiting = self._waiting, []
        wanted = self._wanted
        topics = None if wanted is None else [{"name": name} for name in sorted(wanted)]
        self._wire.submit(
            ApiKey.METADATA,
            {"topics": topics, "allow_auto_topic_creation": self._create and wanted is not None},
            lambda answer: self._answered(answer, wanted, waiting, now),
        )

    def resolve(self, ids: Collection[uuid.UUID], done: Callable[[], None]) -> None:
        """Learns the names of topic ids; those that exist are in `known` afterwards."""

        def answered(answer: Any) -> None:
            if not isinstance(answer, KafkaError):
                self.known.update(_shapes(answer))
            done()

        values = {"topics": [{"topic_id": one, "name": None} for one in ids]}
        self._wire.submit(ApiKey.METADATA, values, answered)

    def ids_of(self, names: Collection[str]) -> dict[str, uuid.UUID]:
        """The ids of these topics; empty where not all are known."""
        found = {}
        for name in names:
            shape = self.known.get(name)
            if shape is None or shape.topic_id is None or not shape.topic_id.int:
                return {}
            found[name] = shape.topic_id
        return found

    def forget_id(self, name: str, now: float) -> None:
        """Forget a topic's id, which the broker does not know any more, and ask for it anew."""
        if name in self.known:
            self.known[name] = self.known[name]._replace(topic_id=None)
        if not self._asking and self._due != math.inf:
            self._ask(now)

    def names_by_id(self) -> dict[uuid.UUID, str]:
        return {one.topic_id: name for name, one in self.known.items() if one.topic_id is not None}

    def _answered(
        self,
        answer: Any,
        wanted: frozenset[str] | None,
        waiting: list[Callable[[], None]],
        now: float,
    ) -> None:
        self._asking = False
        missing = isinstance(answer, KafkaError)
        if missing:
            self._waiting = waiting + self._waiting
        else:
            self.known = _shapes(answer)
            self.version += 1
            for topic in answer.topics:
                if topic.error_code in _TOLD and wanted is not None:
                    self.failure = BrokerError(int(topic.error_code), f"topic {topic.name!r}")
            missing = wanted is not None and not wanted <= self.known.keys()
            if missing:
                self._warn(answer.topics)
        if missing:
            self._due = min(self._due, now + self._pause_s)
            self._pause_s = min(self._pause_s * 2, self._retry_s[1])
        else:
            self._pause_s = self._retry_s[0]
        if self._waiting:
            self._due = min(self._due, now + self._pause_s)
        if not isinstance(answer, KafkaError):
            for done in waiting:
                done()

    def _warn(self, topics: Iterable[Any]) -> None:
        """Once of each topic that was asked for and is not there: it may be on its way, or its
        name be wrong."""
        for topic in topics:
            unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            if unknown and topic.name not in self._warned:
                self._warned.add(topic.name)
                _log.warning("topic %r is subscribed to and does not exist", topic.name)


def _shapes(answer: Any) -> dict[str, Shape]:
    racks = {int(node.node_id): node.rack for node in answer.brokers}
    found = {}
    for topic in answer.topics:
        if topic.error_code == 0 and topic.name is not None:
            parts = sorted(topic.partitions, key=lambda part: int(part.partition_index))
            found[str(topic.name)] = Shape(
                getattr(topic, "topic_id", None),
                bool(topic.is_internal),
                tuple(
                    frozenset(rack for node in part.replica_nodes if (rack := racks.get(int(node))))
                    for part in parts
                ),
            )
    return found
