"""Health checks: their results, and calls that come at the same time."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbroker.server import health as health_module
from kbroker.server.health import Health

CALLERS = 8
NO_ANSWER = "no answer"


class Broker:
    """Planes with a fault function of the test; logs that failed, groups that are being loaded."""

    loading = True
    failure = "a partition cannot be written"

    def __init__(self, fault: Callable[[float], str | None]) -> None:
        self._fault = fault
        self.checks = 0

    def fault(self, timeout_s: float) -> str | None:
        self.checks += 1
        return self._fault(timeout_s)

    def health(self) -> Health:
        return Health(self, self, self)  # type: ignore[arg-type]


def hang(timeout_s: float) -> str:
    """A fault function of a broker that never answers."""
    threading.Event().wait(timeout_s)
    return NO_ANSWER


def test_health_names_each_fault() -> None:
    health = Broker(lambda _: None).health()
    assert health.faults() == []
    assert [fault.split()[0] for fault in health.unready()] == ["the", "groups"]
    health = Broker(lambda _: NO_ANSWER).health()
    assert health.faults() == [NO_ANSWER]
    assert len(health.unready()) == 3


def test_health_callers_at_once_share_a_check(monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight checks in turn would take eight timeouts."""
    monkeypatch.setattr(health_module, "_ANSWER_S", 1.0)
    broker = Broker(hang)
    health = broker.health()
    together = threading.Barrier(CALLERS)

    def call() -> list[str]:
        together.wait()
        return health.faults()

    begun = time.monotonic()
    with ThreadPoolExecutor(CALLERS) as pool:
        results = [pool.submit(call) for _ in range(CALLERS)]
    assert [result.result() for result in results] == [[NO_ANSWER]] * CALLERS
    assert broker.checks <= 2
    assert time.monotonic() - begun < 3.0
    assert health.faults() == [NO_ANSWER]
    assert broker.checks >= 2, "a check that has ended is not used again"


def test_health_check_that_hangs_delays_others_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_module, "_ANSWER_S", 0.2)
    begun, over = threading.Event(), threading.Event()

    def hang_until_over(_: float) -> str | None:
        begun.set()
        over.wait()
        return None

    health = Broker(hang_until_over).health()
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(health.faults)
        assert begun.wait(60)
        second = pool.submit(health.faults)
        try:
            assert second.result(60) == ["no result of a health check in 0.2 s"]
        finally:
            over.set()
        assert first.result(60) == []


def test_health_check_that_raises_ends_for_all() -> None:
    def fail(_: float) -> str | None:
        raise RuntimeError("on purpose")

    health = Broker(fail).health()
    for _ in range(2):
        with pytest.raises(RuntimeError, match="on purpose"):
            health.faults()
