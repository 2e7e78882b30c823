"""The control thread of a producer: what is rare, in Python.

It waits without the GIL for what the loop and the sender ask (`WISH_*`): leaders of topics, links
to brokers, a producer id, callbacks of batches whose outcome is known. It holds loop, driver and
cluster, never the producer, so that a producer that nobody refers to any more can go.
"""

from __future__ import annotations

import functools
import logging
import time
from typing import Any

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.errors import AuthenticationError, BrokerError, ClosedError, KafkaError
from kbroker.client.reach import IdleLinks
from kbroker.errors import ErrorCode
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_producer import SenderDriver
from kbroker.protocol import ApiKey

__all__ = ["Control", "tell_topic"]

WISH_METADATA, WISH_PRODUCER_ID, WISH_CALLBACKS, WISH_LINK, WISH_DROP = 1, 2, 4, 8, 16
EVENT_CLOSED = 0
_PRODUCE_HIGH = 13  # of ext/client_produce.pxd
_PRODUCE_LOW = 3
_IDLE_S = 3600.0

_log = logging.getLogger("kbroker.client.producer")


def tell_topic(driver: SenderDriver, info: TopicInfo) -> None:
    """Tells the sender of a topic's partitions and leaders."""
    count = max((part.index for part in info.partitions), default=-1) + 1
    leaders = [(-1, -1)] * count
    for part in info.partitions:
        leaders[part.index] = (part.leader, part.leader_epoch)
    driver.set_topic(info.name, info.topic_id.bytes, leaders)


class Control:
    """What the thread knows; `run` is its body."""

    def __init__(
        self,
        loop: ClientLoop,
        driver: SenderDriver,
        cluster: Cluster,
        *,
        max_age_s: float,
        max_idle_s: float,
    ) -> None:
        self.loop = loop
        self.driver = driver
        self.cluster = cluster
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._wishes = 0
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._renew_at_s: dict[int, float] = {}
        self._refresh_at_s = time.monotonic() + max_age_s
        self._idle = IdleLinks(loop, cluster.settings.idle_max_s)
        self._idle_at_s = time.monotonic() + self._idle.look_s

    def run(self) -> None:
        """Until the loop has ended and all callbacks have run."""
        while True:
            events = self.loop.events(self._pause_s())
            self._wishes |= self.driver.wishes()
            self.driver.run_callbacks()
            if any(event[0] == EVENT_CLOSED for event in events):
                self.driver.run_callbacks()
                return
            try:
                self._act()
            except ClosedError:
                self._wishes = 0

    def _pause_s(self) -> float:
        now_s = time.monotonic()
        due = [self._not_before_s.get(w, 0.0) for w in self._steps() if self._wishes & w]
        due += [self._refresh_at_s, self._idle_at_s, *self._renew_at_s.values()]
        return max(0.0, min([now_s + _IDLE_S, *due]) - now_s)

    def _steps(self) -> dict[int, Any]:
        return {
            WISH_DROP: self._drop_links,
            WISH_METADATA: self._find_leaders,
            WISH_LINK: self._make_links,
            WISH_PRODUCER_ID: self._get_producer_id,
        }

    def _act(self) -> None:
        now_s = time.monotonic()
        if now_s >= self._refresh_at_s:
            self._refresh_at_s = now_s + self._max_age_s
            if self.driver.topic_names(self._max_idle_s):
                self._wishes |= WISH_METADATA
        if now_s >= self._idle_at_s:
            self._idle_at_s = now_s + self._idle.look_s
            self._idle.drop(self.driver.links().values())
            self.cluster.drop_idle()
        self._renew_links(now_s)
        for wish, step in self._steps().items():
            if not self._wishes & wish or self._not_before_s.get(wish, 0.0) > now_s:
                continue
            self._wishes &= ~wish
            try:
                step()
                self._failures.pop(wish, None)
                self._not_before_s[wish] = time.monotonic() + self.cluster.pause_s(1)
            except ClosedError:
                raise
            except KafkaError as error:
                self._failed(wish, error)
            except Exception as error:
                _log.exception("the producer's control thread met an error; it goes on")
                self._failed(wish, KafkaError(str(error)))

    def _failed(self, wish: int, error: KafkaError) -> None:
        """Again later; what no second try can change ends the producer."""
        if isinstance(error, AuthenticationError) or (wish == WISH_PRODUCER_ID and error.fatal):
            code = error.code or ErrorCode.SASL_AUTHENTICATION_FAILED
            _log.error("%s", error)
            self.driver.set_producer_id(-1, -1, int(code))
            return
        failures = self._failures[wish] = self._failures.get(wish, 0) + 1
        self._wishes |= wish | (WISH_METADATA if wish == WISH_LINK else 0)
        self._not_before_s[wish] = time.monotonic() + self.cluster.pause_s(failures)
        _log.info("%s; trying again", error)

    # ---- what is asked

    def _find_leaders(self) -> None:
        names = self.driver.topic_names(self._max_idle_s)
        told = self.cluster.retry(lambda: self.cluster.describe(names), timeout_s=0.0)
        for info in told.values():
            if isinstance(info, TopicInfo):
                tell_topic(self.driver, info)
            else:
                _log.warning("%s", info)
        self._wishes |= WISH_LINK

    def _make_links(self) -> None:
        failure: KafkaError | None = None
        for node in sorted(self.driver.leaders_wanted() - self.driver.links().keys()):
            try:
                self.cluster.retry(functools.partial(self._make_link, node), timeout_s=0.0)
            except ClosedError:
                raise
            except KafkaError as error:
                failure = error
        if failure is not None:
            raise failure

    def _make_link(self, node: int) -> None:
        made = self.cluster.open(node, wait=False)  # other brokers, and callbacks, wait meanwhile
        low, high = made.broker_versions.get(int(ApiKey.PRODUCE), (0, -1))
        version = min(_PRODUCE_HIGH, high)
        if version < max(_PRODUCE_LOW, low):
            made.close()
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"broker {made.address}: Produce")
        link = made.hand_over(self.loop)
        if made.renew_at < float("inf"):
            self._renew_at_s[node] = made.renew_at
        self.driver.set_link(node, link, version)

    def _renew_links(self, now_s: float) -> None:
        """Sessions that end: another link first, then the old one goes; what it had in flight is
        sent again."""
        for node in [node for node, at_s in self._renew_at_s.items() if at_s <= now_s]:
            del self._renew_at_s[node]
            old = self.driver.links().get(node)
            if old is not None:
                try:
                    self._make_link(node)
                except KafkaError as error:
                    self._failed(WISH_LINK, error)
                self.loop.drop_link(old)

    def _drop_links(self) -> None:
        for link in self.driver.lying_links():
            _log.error("a broker answered a Produce with what is no answer; its link is dropped")
            self.loop.drop_link(link)

    def _get_producer_id(self) -> None:
        body = self.cluster.any_connection().call(
            ApiKey.INIT_PRODUCER_ID,
            {
                "transactional_id": None,
                "transaction_timeout": 2**31 - 1,
                "producer_id": -1,
                "producer_epoch": -1,
            },
        )
        if body.error_code != 0:
            raise BrokerError(int(body.error_code), "producer id")
        self.driver.set_producer_id(int(body.producer_id), int(body.producer_epoch))
