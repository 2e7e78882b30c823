"""Topics that the sends of an event loop wait for: one thread asks for all of them at once.

However many wait, each ends by its own time: it has its topic, or the last reason why not. What
fails in a way that passes is asked for again, a topic that is not there included, as brokers may be
about to create it; one that is wanted anew is asked for at once.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from kbroker.client.again import again
from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.errors import BrokerError, KafkaError
from kbroker.client.messages import check_string
from kbroker.client.producer_control import tell_topic
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_flag import Flag
from kbroker.ext.client_producer import SenderDriver

__all__ = ["TopicWaits"]


class _Wait(NamedTuple):
    """partition -1: any. until_s: monotonic."""

    partition: int
    until_s: float
    found: Future[None]


class TopicWaits:
    """The thread lives until `close`; there is none before the first wait."""

    def __init__(self, cluster: Cluster, driver: SenderDriver) -> None:
        self._cluster = cluster
        self._driver = driver
        self._threads = ThreadPoolExecutor(1, "kbroker-async-topics")
        self._come = Flag()  # set for a topic that is new, and for the end
        self._lock = threading.Lock()  # guards what follows
        self._waits: dict[str, list[_Wait]] = {}
        self._is_running = False
        self._is_closed = False

    def find(self, topic: str, partition: int, until_s: float) -> Future[None]:
        """Done when the driver knows the topic and this partition of it; raises ValueError where
        there is none, or what the cluster says. It may be cancelled. Raises SerializationError."""
        check_string("topic", topic)  # those who wait for others are asked for with it
        wait = _Wait(partition, until_s, Future())
        with self._lock:
            if topic not in self._waits:
                self._waits[topic] = []
                self._come.set()
            self._waits[topic].append(wait)
            if not self._is_running:
                self._is_running = True
                self._threads.submit(self._run)
        return wait.found

    def close(self) -> None:
        """After the cluster; those that wait get ClosedError."""
        self._is_closed = True
        self._come.set()
        self._threads.shutdown(wait=False)

    # ---- the thread

    def _run(self) -> None:
        """Until nobody waits."""
        failures = 0
        while wanted := self._wanted():
            told = self._ask(wanted)
            failures += 1
            pause_s = self._cluster.pause_s(failures)
            for topic in list(self._waits):  # who came meanwhile knows why nobody answers as well
                if isinstance(told, Exception):
                    self._tell(topic, told, pause_s)
                elif topic in wanted:
                    self._tell(topic, told.get(topic) or _unknown(topic), pause_s)
            self._come.clear()
            with self._lock:
                is_new = not self._waits.keys() <= wanted.keys()
                waits = bool(self._waits) and not self._is_closed
            if is_new:
                failures = 0
            elif waits:
                self._come.wait(pause_s)

    def _wanted(self) -> dict[str, float]:
        """The topics that are waited for, and until when at least."""
        with self._lock:
            for topic, waits in list(self._waits.items()):
                self._waits[topic] = [wait for wait in waits if not wait.found.cancelled()]
                if not self._waits[topic]:
                    del self._waits[topic]
            self._is_running = bool(self._waits)
            return {
                topic: min(wait.until_s for wait in waits) for topic, waits in self._waits.items()
            }

    def _ask(self, wanted: dict[str, float]) -> dict[str, TopicInfo | BrokerError] | Exception:
        """What the cluster says to each, or why it says nothing until the first one's time."""
        left_s = max(min(wanted.values()) - monotonic(), 0.0)
        try:
            return self._cluster.retry(
                lambda: self._cluster.describe(wanted, create=True), left_s, ends=True
            )
        except Exception as error:
            return error

    def _tell(self, topic: str, told: TopicInfo | Exception, pause_s: float) -> None:
        """Those whom it ends: all, but those that have time for a try of what passes."""
        if isinstance(told, TopicInfo):
            told = self._taken(told)
        passes = isinstance(told, KafkaError) and told.retriable and not self._is_closed
        over_s = monotonic() + pause_s
        with self._lock:
            waits = self._waits.pop(topic, [])
            left = [wait for wait in waits if passes and wait.until_s > over_s]
            if left:
                self._waits[topic] = left
        for wait in waits:
            if wait not in left and wait.found.set_running_or_notify_cancel():
                _end(wait, topic, told)

    def _taken(self, info: TopicInfo) -> TopicInfo | Exception:
        """The driver knows of it."""
        try:
            tell_topic(self._driver, info)
        except Exception as error:
            return error
        return info if info.partitions else _unknown(info.name)


def _unknown(topic: str) -> BrokerError:
    return BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic!r}")


def _end(wait: _Wait, topic: str, told: TopicInfo | Exception) -> None:
    if isinstance(told, Exception):
        wait.found.set_exception(again(told))
    elif wait.partition >= len(told.partitions):
        count = len(told.partitions)
        wait.found.set_exception(
            ValueError(f"partition: topic {topic!r} has {count}, so none {wait.partition}")
        )
    else:
        wait.found.set_result(None)
