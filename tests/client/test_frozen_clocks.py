"""Time limits under libraries that freeze Python's clocks in tests."""

from __future__ import annotations

import subprocess
import sys

from tests.support import wire
from tests.support.processes import BrokerProcess
from tests.support.tree import ROOT
from tests.support.waits import free_ports

SLOW_S = 120


def test_frozen_clocks_stop_no_call(target: BrokerProcess) -> None:
    """All calls end in time: their limits are those of the operating system's clock."""
    wire.create_topic(target.port, "t", 1)
    nobody = f"127.0.0.1:{free_ports(1)[0]}"
    command = [sys.executable, "-m", "tests.client.frozen", target.bootstrap, nobody]
    done = subprocess.run(
        command, cwd=ROOT, check=False, capture_output=True, text=True, timeout=SLOW_S
    )
    assert done.stdout.split() == [
        "poll", "poll_batch", "send", "close", "admin", "records", "stop"
    ], done.stderr  # fmt: skip
