"""Shutdown of a producer's threads and connections."""

from __future__ import annotations

import logging
import os

from kbroker.client.cluster import Cluster
from kbroker.client.native_threads import Thread, is_current
from kbroker.ext.client_loop import ClientLoop
from kbroker.ext.client_producer import SenderDriver

__all__ = ["shut", "stop"]

_log = logging.getLogger("kbroker.client.producer")


def shut(
    pid: int,
    loop: ClientLoop,
    cluster: Cluster,
    thread: Thread,
    driver: SenderDriver,
) -> None:
    """End a producer that was not closed, when it is collected or the interpreter ends. Does
    nothing in a child of fork(), where locks of the parent's threads are never released."""
    if pid != os.getpid():
        return
    waiting = driver.totals()["batches_waiting"]
    if waiting:
        _log.warning(
            "a producer was not closed: %d batches of records are given up; close(), or leaving"
            " `with`, delivers them",
            waiting,
        )
    stop(pid, loop, cluster, thread, driver)


def stop(
    _: int,
    loop: ClientLoop,
    cluster: Cluster,
    thread: Thread,
    driver: SenderDriver,
) -> None:
    """End both threads; what was not delivered fails."""
    loop.close()
    cluster.close()
    if not is_current(thread):
        thread.join(10.0)
    driver.run_callbacks()
    driver.unasked.end()
