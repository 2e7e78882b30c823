"""Idle connections of a client that has no thread of its own to look after them."""

from __future__ import annotations

import weakref

from kbroker.client.cluster import Cluster
from kbroker.client.native_threads import thread

__all__ = ["sweep"]

_MOST_S = 30.0


def sweep(cluster: Cluster) -> None:
    """Ends its idle connections in the background, until it is closed or nobody has it any more."""
    idle_max_s = cluster.settings.idle_max_s
    if idle_max_s == float("inf"):
        return
    every_s = min(max(idle_max_s / 8, 0.01), _MOST_S)
    seen = weakref.ref(cluster)
    closed = cluster.closed

    def run() -> None:
        while not closed.wait(every_s):
            alive = seen()
            if alive is None:
                return
            alive.drop_idle()
            del alive

    thread(run, "kbroker-admin-idle").start()
