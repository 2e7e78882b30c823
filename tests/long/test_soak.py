"""Minutes of load: nothing lost, and the broker at the end as it was at the beginning.

With FULL=1 it is half an hour.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kbroker import runfile
from kbroker.cli.scrape import Scrape, scrape
from tests.support.kbroker import KbrokerProcess
from tests.support.rounds import scaled
from tests.support.waits import wait_for

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SOAK_S = scaled(180, full=1800)
WARM_S = scaled(60, full=600)  # caches, pools and segments have their size by then
LOOK_S = scaled(5.0, full=20.0)
MEMORY_GROWTH_MAX_BYTES = 32 << 20


def metrics(broker: KbrokerProcess) -> Scrape:
    info = runfile.running(broker.data_dir)
    assert info is not None
    return scrape(info.http[0])


def middle(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def test_a_soak(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    broker = KbrokerProcess(tmp_path / "broker", {"group.consumer.session.timeout.ms": "45000"})
    broker.start()
    words = ["bench", "locust", "--profile", "soak", "--for", f"{SOAK_S}s", "--users", "14",
             "--bursts", "2", "-b", broker.bootstrap, "--csv", str(tmp_path / "soak")]  # fmt: skip
    looks: list[Scrape] = []
    process = subprocess.Popen([sys.executable, "-m", "kbroker.cli", *words], env=dict(os.environ))
    try:

        def ended() -> bool:
            looks.append(metrics(broker))
            return process.poll() is not None

        wait_for("the soak to end", ended, SOAK_S + 1200, pause_s=LOOK_S)
        assert process.returncode == 0
        began = looks[0].at_s
        during = [look for look in looks if look.at_s - began < SOAK_S]
        warm = [look for look in during if look.at_s - began > WARM_S]
        third = len(warm) // 3
        assert third >= 5
        report(looks)
        for name, most in (
            ("process_resident_memory_bytes", MEMORY_GROWTH_MAX_BYTES),
            ("process_open_fds", 16),
            ("kbroker_process_threads", 0),
        ):
            early = middle([look.total(name) for look in warm[:third]])
            late = middle([look.total(name) for look in warm[-third:]])
            assert late - early <= most, f"{name} went from {early} to {late}"
    finally:
        process.terminate()  # it ends Locust
        process.wait()
        broker.kill()


def report(looks: list[Scrape]) -> None:
    """For whoever reads the test's output: how it went."""
    for look in looks[:: max(len(looks) // 12, 1)]:
        sys.stdout.write(
            f"{look.at_s - looks[0].at_s:6.0f} s"
            f" {look.total('process_resident_memory_bytes') / 2**20:7.1f} MiB"
            f" {look.total('process_open_fds'):5.0f} files"
            f" {look.total('kbroker_process_threads'):4.0f} threads"
            f" {look.total('kbroker_requests_total'):10.0f} requests\n"
        )
