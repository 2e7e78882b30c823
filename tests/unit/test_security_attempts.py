"""Tokens that are not valid, by address: how many are looked at."""

from __future__ import annotations

import pytest

from kbroker.security.attempts import (
    ADDRESSES_MAX,
    FAILURES_BURST,
    FAILURES_PER_S,
    FailureLimit,
)
from tests.support.control import FakeClock


def spend(limit: FailureLimit, address: str) -> int:
    """Fail until no more is allowed; how often that was."""
    times = 0
    while limit.allows(address):
        limit.failed(address)
        times += 1
    return times


def test_an_address_may_fail_in_a_burst_and_then_so_often_a_second() -> None:
    clock = FakeClock()
    limit = FailureLimit(clock)
    assert spend(limit, "10.0.0.1") == FAILURES_BURST
    assert spend(limit, "10.0.0.1") == 0
    clock.advance(1000)
    assert spend(limit, "10.0.0.1") == FAILURES_PER_S
    clock.advance(1_000_000)
    assert spend(limit, "10.0.0.1") == FAILURES_BURST


def test_who_fails_holds_up_nobody_else() -> None:
    limit = FailureLimit(FakeClock())
    spend(limit, "10.0.0.1")
    assert limit.allows("10.0.0.2") and limit.allows("fe80::1%eth0") and limit.allows("")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("2001:db8::1", "2001:db8::ffff:2", True),
        ("2001:db8::1", "2001:db8:0:1::1", False),
        ("fe80::1%eth0", "fe80::2%eth0", True),
    ],
)
def test_the_addresses_of_a_network_are_one_client(one: str, other: str, *, same: bool) -> None:
    limit = FailureLimit(FakeClock())
    spend(limit, one)
    assert limit.allows(other) is not same


def test_so_many_addresses_are_remembered() -> None:
    limit = FailureLimit(FakeClock())
    spend(limit, "10.0.0.1")
    for number in range(ADDRESSES_MAX - 1):
        limit.failed(f"10.1.{number // 256}.{number % 256}")
    assert not limit.allows("10.0.0.1")
    limit.failed("10.2.0.0")
    assert limit.allows("10.0.0.1"), "the oldest is forgotten"
    assert len(limit._addresses) == ADDRESSES_MAX
