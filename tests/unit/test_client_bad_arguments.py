"""Arguments that the native client refuses, and the mutexes that it needs for the next call."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.support.tree import ROOT

DEADLINE_S = 60

# Each program calls a method twice: with a number that does not fit, then with one that does.
PROGRAMS = {
    "link_stats": """
        from kbroker.ext.client_loop import ClientLoop
        loop = ClientLoop(client_id="test", name="test-arguments")
        refused(lambda: loop.link_stats(1 << 70))
        assert loop.link_stats(3) is None
        """,
    "set_producer_id": """
        from kbroker.client.config_producer import ProducerConfig
        from kbroker.client.producer_driver import driver_of
        driver = driver_of(ProducerConfig(bootstrap_servers=["127.0.0.1:1"]), 0)
        refused(lambda: driver.set_producer_id(1 << 70, 0))
        refused(lambda: driver.set_producer_id(1, 1 << 20))
        refused(lambda: driver.set_producer_id(1, 0, 1 << 20))
        driver.set_producer_id(1, 0)
        assert driver.totals()["batches_waiting"] == 0
        """,
}

REFUSED = """
def refused(call):
    try:
        call()
    except OverflowError:
        return
    raise AssertionError("the number was taken")
"""


@pytest.mark.parametrize("name", PROGRAMS)
def test_refused_argument_leaves_mutex_unlocked(name):
    """In a process of its own: a thread that waits for a mutex with the GIL stops all others."""
    program = REFUSED + "".join(line.strip() + "\n" for line in PROGRAMS[name].splitlines())
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True, timeout=DEADLINE_S)
