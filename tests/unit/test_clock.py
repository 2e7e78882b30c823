import time

import pytest

from kbroker.clock import FakeClock, SystemClock


def test_system_clock_reads_both_clocks_in_milliseconds():
    clock = SystemClock()
    before, before_mono = time.time_ns() // 1_000_000, time.monotonic_ns() // 1_000_000
    wall, mono = clock.wall_ms(), clock.monotonic_ms()
    assert before <= wall <= time.time_ns() // 1_000_000
    assert before_mono <= mono <= time.monotonic_ns() // 1_000_000


def test_fake_clock_moves_only_when_told():
    clock = FakeClock(wall_ms=1000)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1000, 0)
    clock.advance(250)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (1250, 250)


def test_wall_clock_may_jump_back_while_monotonic_stays():
    clock = FakeClock(wall_ms=1000, monotonic_ms=7)
    clock.set_wall_ms(10)
    assert (clock.wall_ms(), clock.monotonic_ms()) == (10, 7)


def test_time_does_not_go_back():
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)
