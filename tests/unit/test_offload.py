"""Computations on another thread."""

from __future__ import annotations

import threading
from collections.abc import Callable

from kbroker.offload import Offload
from tests.support.waits import wait_for


def test_offload_computes_on_its_thread_and_posts_the_outcome() -> None:
    posted: list[Callable[[], None]] = []
    offload = Offload()
    assert offload.run(lambda: 1).result() == 1
    offload.open(posted.append)
    try:
        where = offload.run(threading.current_thread)
        failed = offload.run(lambda: {}["missing"])
        wait_for("two outcomes", lambda: len(posted) == 2, 30)
        assert not where.done
        for each in posted:
            each()
        assert where.result() is not threading.current_thread()
        assert isinstance(failed.error, KeyError)
    finally:
        offload.close()
