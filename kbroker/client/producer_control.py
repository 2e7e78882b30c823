"""The control thread of a producer: what is rare, in Python.

It waits without the GIL for what the loop and the sender ask (`WISH_*`): leaders of topics, links
to brokers, a producer id, callbacks of batches whose outcome is known. Brokers are asked beside it
(`Errands`): one that does not answer holds up neither the others nor callbacks. It holds loop,
driver and cluster, never the producer, so that a producer that nobody refers to any more can go.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any

from kbroker.client.cluster import Cluster, TopicInfo
from kbroker.client.connection import Connection
from kbroker.client.errands import Errands
from kbroker.client.errors import AuthenticationError, BrokerError, ClosedError, KafkaError
from kbroker.client.reach import IdleLinks
from kbroker.client.transactions import Transactions
from kbroker.errors import ErrorCode
from kbroker.ext.client_clock import monotonic
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_producer import SenderDriver
from kbroker.ext.client_transactions import TransactionalDriver
from kbroker.protocol import ApiKey

__all__ = ["Control", "tell_topic"]

WISH_METADATA, WISH_PRODUCER_ID, WISH_CALLBACKS, WISH_LINK, WISH_DROP = 1, 2, 4, 8, 16
WISH_PARTITIONS = 32
EVENT_CLOSED, EVENT_LINK_DOWN = 0, 1
_TIMEOUT = -2  # a LinkCode
_PRODUCE_HIGH = 13  # of ext/client_produce.pxd
_PRODUCE_LOW = 3
_PRODUCE_HIGH_V1 = 11  # of who adds partitions to transactions by himself
_IDLE_S = 3600.0
_UNASKED_S = 1.0  # between two looks for failures that nobody can ask about any more

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
        transactions: Transactions | None = None,
    ) -> None:
        self._transactions = transactions
        self.loop = loop
        self.driver = driver
        self.cluster = cluster
        self._max_age_s = max_age_s
        self._max_idle_s = max_idle_s
        self._errands = Errands(loop.name, loop.tell)
        self._wishes = 0
        self._nodes: dict[int, int] = {}  # link: node
        self._not_before_s: dict[int, float] = {}
        self._failures: dict[int, int] = {}
        self._renew_at_s: dict[int, float] = {}
        self._refresh_at_s = monotonic() + max_age_s
        self._idle = IdleLinks(loop, cluster.settings.idle_max_s)
        self._idle_at_s = monotonic() + self._idle.look_s

    def run(self) -> None:
        """Until the loop has ended and all callbacks have run."""
        while True:
            events = self.loop.events(self._pause_s())
            self._wishes |= self.driver.wishes()
            self.driver.run_callbacks()
            if any(event[0] == EVENT_CLOSED for event in events):
                self.driver.run_callbacks()
                self._errands.close()
                return
            for kind, link, _, code, _ in events:
                if kind == EVENT_LINK_DOWN:
                    self._lost(link, code)
            try:
                self._errands.collect()
                self._act()
            except Exception:
                if not self.loop.closed:
                    _log.exception("the producer's control thread met an error; it goes on")

    def _pause_s(self) -> float:
        now_s = monotonic()
        due = [self._not_before_s.get(w, 0.0) for w in (WISH_LINK, *self._steps()) if self._open(w)]
        due += [self._refresh_at_s, self._idle_at_s, *self._renew_at_s.values()]
        if self.driver.unasked.waits:
            due.append(now_s + _UNASKED_S)
        return max(0.0, min([now_s + _IDLE_S, *due]) - now_s)

    def _steps(self) -> dict[int, Callable[[], None]]:
        """What is done for a wish, beside this thread."""
        return {
            WISH_METADATA: self._find_leaders,
            WISH_PRODUCER_ID: self._get_producer_id,
            WISH_PARTITIONS: self._add_partitions,
        }

    def _open(self, wish: int) -> bool:
        """It is wished for, and nobody is about it."""
        return bool(self._wishes & wish) and not self._errands.busy(wish)

    def _due(self, wish: int, now_s: float) -> bool:
        """Open, and its time has come: it is no wish any more."""
        if not self._open(wish) or self._not_before_s.get(wish, 0.0) > now_s:
            return False
        self._wishes &= ~wish
        return True

    def _act(self) -> None:
        now_s = monotonic()
        if now_s >= self._refresh_at_s:
            self._refresh_at_s = now_s + self._max_age_s
            if self.driver.topic_names(self._max_idle_s):
                self._wishes |= WISH_METADATA
        if now_s >= self._idle_at_s:
            self._idle_at_s = now_s + self._idle.look_s
            self._idle.drop(self.driver.links().values())
            self.cluster.drop_idle()
        self._renew_links(now_s)
        if self._due(WISH_DROP, now_s):
            self._drop_links()
        if self._due(WISH_LINK, now_s):
            for node in sorted(self.driver.leaders_wanted() - self.driver.links().keys()):
                self._make_link(node)
        for wish, step in self._steps().items():
            if self._due(wish, now_s):
                self._errands.start(wish, step, functools.partial(self._did, wish))

    def _did(self, wish: int, result: Any) -> None:
        """What came of it: an exception, or else it is done."""
        if isinstance(result, ClosedError):
            return
        if isinstance(result, Exception):
            if not isinstance(result, KafkaError):
                _log.error("the producer met an error; it goes on", exc_info=result)
                result = KafkaError(str(result))
            self._failed(wish, result)
            return
        self._failures.pop(wish, None)
        self._not_before_s[wish] = monotonic() + self.cluster.pause_s(1)
        if wish == WISH_METADATA:
            self._wishes |= WISH_LINK
        if wish == WISH_PRODUCER_ID:
            self._wishes &= ~wish  # it was wished for until it was there

    def _failed(self, wish: int, error: KafkaError) -> None:
        """Try again later. As in Apache Kafka's producer, an error ends the producer for good where
        it asks for its id, or adds partitions to a transaction; a refused login of another
        connection may be accepted later."""
        refused = wish == WISH_PARTITIONS and isinstance(error, AuthenticationError)
        if refused or (wish == WISH_PRODUCER_ID and error.fatal):
            code = error.code or ErrorCode.SASL_AUTHENTICATION_FAILED
            _log.error("%s", error)
            self.driver.set_producer_id(-1, -1, int(code))
            return
        failures = self._failures[wish] = self._failures.get(wish, 0) + 1
        self._wishes |= wish | (WISH_METADATA if wish == WISH_LINK else 0)
        self._not_before_s[wish] = monotonic() + self.cluster.pause_s(failures)
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

    def _make_link(self, node: int) -> None:
        """Each node's beside the others."""
        errand = (WISH_LINK, node)
        if not self._errands.busy(errand):
            self._errands.start(
                errand,
                lambda: self.cluster.retry(lambda: self.cluster.open(node, wait=False), 0.0),
                functools.partial(self._linked, node),
            )

    def _linked(self, node: int, result: Any) -> None:
        """In the place of the link that there may be, whose session ends; what that one has in
        flight is sent again."""
        old = self.driver.links().get(node)
        if isinstance(result, Connection):
            try:
                self._take(node, result)
            except KafkaError as error:
                result = error
        self._did(WISH_LINK, result)
        if old is not None:
            self.loop.drop_link(old)

    def _take(self, node: int, made: Connection) -> None:
        low, high = made.broker_versions.get(int(ApiKey.PRODUCE), (0, -1))
        version = min(self._produce_high(), high)
        if version < max(_PRODUCE_LOW, low):
            made.close()
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, f"broker {made.address}: Produce")
        link = made.hand_over(self.loop)
        self._nodes[link] = node
        if made.renew_at < float("inf"):
            self._renew_at_s[node] = made.renew_at
        self.driver.set_link(node, link, version)

    def _lost(self, link: int, code: int) -> None:
        node = self._nodes.pop(link, None)
        if node is not None and code == _TIMEOUT:
            self.cluster.doubt(node)

    def _produce_high(self) -> int:
        if isinstance(self.driver, TransactionalDriver) and not self.driver.adds_partitions:
            return _PRODUCE_HIGH_V1
        return _PRODUCE_HIGH

    def _add_partitions(self) -> None:
        if self._transactions is not None:
            self._transactions.add_wanted()

    def _renew_links(self, now_s: float) -> None:
        """Sessions that end: another link first, then the old one goes."""
        for node in [node for node, at_s in self._renew_at_s.items() if at_s <= now_s]:
            del self._renew_at_s[node]
            if node in self.driver.links():
                self._make_link(node)

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
