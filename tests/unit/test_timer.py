"""The timing wheel against a list of deadlines."""

import random

from hypothesis import given
from hypothesis import strategies as st

from kbroker.ext.testing_network import TimerWheel

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("arm"), st.integers(0, 9), st.integers(-5, 300_000)),
        st.tuples(st.just("arm"), st.integers(0, 9), st.integers(0, 1 << 40)),
        st.tuples(st.just("disarm"), st.integers(0, 9), st.just(0)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 70)),
        st.tuples(st.just("advance"), st.just(0), st.integers(0, 300_000)),
        st.tuples(st.just("sleep"), st.just(0), st.just(0)),
    ),
    max_size=60,
)


@given(st.integers(0, 1 << 41), STEPS)
def test_fires_what_is_due_and_nothing_else(now, steps):
    wheel = TimerWheel(now, 10)
    deadlines = {}
    for what, number, value in steps:
        if what == "arm":
            deadlines[number] = now + value
            wheel.arm(number, now + value)
        elif what == "disarm":
            deadlines.pop(number, None)
            wheel.disarm(number)
        else:
            waited = wheel.wait_ms()
            assert (waited < 0) == (not deadlines)
            if deadlines:
                # Never too long; a deadline that has passed waits for the next tick.
                assert waited <= max(1, min(deadlines.values()) - now)
            before = now
            now += max(waited, 0) if what == "sleep" else value
            fired = wheel.advance(now)
            # One that was late when it was armed fires as soon as time moves on.
            due = {at for at, deadline in deadlines.items() if deadline <= now and now > before}
            assert set(fired) == due
            assert len(fired) == len(due)
            for at in fired:
                del deadlines[at]
        assert wheel.armed() == len(deadlines)


def test_a_sleeper_wakes_seldom_for_a_far_deadline():
    wheel = TimerWheel(1_000_003, 1)
    wheel.arm(0, 1_000_003 + 600_000)
    now, turns = 1_000_003, 0
    while wheel.armed():
        now += wheel.wait_ms()
        turns += 1
        wheel.advance(now)
    assert now == 1_600_003
    assert turns <= 5


def test_many_timers_fire_in_order_of_their_ticks():
    rng = random.Random(4)
    deadlines = [rng.randrange(1, 100_000) for _ in range(2000)]
    wheel = TimerWheel(0, len(deadlines))
    for number, deadline in enumerate(deadlines):
        wheel.arm(number, deadline)
    fired = wheel.advance(100_000)
    assert [deadlines[number] for number in fired] == sorted(deadlines)
