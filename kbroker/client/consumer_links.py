"""Links of a consumer's loop to brokers, opened when they are first needed."""

from __future__ import annotations

import threading
from collections import defaultdict

from kbroker.client.cluster import Cluster
from kbroker.client.errors import UnsupportedApiError
from kbroker.client.native_threads import Lock
from kbroker.ext.client_loop import ClientLoop
from kbroker.protocol import ApiKey

__all__ = ["Links"]


class Links:
    """Any thread; who wants the same node's at the same time waits for one attempt."""

    def __init__(self, cluster: Cluster, loop: ClientLoop) -> None:
        self._cluster = cluster
        self._loop = loop
        self._lock = Lock()
        self._opening: defaultdict[int, threading.Lock] = defaultdict(Lock)
        self._links: dict[int, int] = {}  # node: link
        self._renew_s: dict[int, float] = {}  # link: monotonic time

    def to(self, node: int) -> int:
        """The link to a node. Raises KafkaError where there is no way."""
        with self._lock:
            opening = self._opening[node]
        with opening:
            with self._lock:
                found = self._links.get(node)
            if found is None or self._loop.link_stats(found) is None:  # its event is on the way
                found = self._open(node)
        return found

    def _open(self, node: int) -> int:
        connection = self._cluster.open(node, wait=False)
        try:
            connection.version_of(ApiKey.FETCH)
        except UnsupportedApiError:
            connection.close()
            raise
        made = connection.hand_over(self._loop)
        with self._lock:
            self._links[node] = made
            self._renew_s[made] = connection.renew_at
        return made

    def node_of(self, link: int) -> int:
        """Who is at the other end; -1: it is gone."""
        with self._lock:
            return next((node for node, known in self._links.items() if known == link), -1)

    def lost(self, link: int) -> int:
        """It broke, or is about to be dropped; whose it was."""
        node = self.node_of(link)
        with self._lock:
            self._renew_s.pop(link, None)
            if self._links.get(node) == link:
                del self._links[node]
        return node

    def renew(self, now: float) -> None:
        """Drops those whose SASL session nears its end; they are opened anew when needed."""
        with self._lock:
            ending = [link for link, at in self._renew_s.items() if now >= at]
        for link in ending:
            self.lost(link)
            self._loop.drop_link(link)

    def all(self) -> list[int]:
        """Those there are."""
        with self._lock:
            return list(self._links.values())
