"""Timers of the group coordinator against a plain dict, and the hash that places groups."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbroker.group.outcome import NOTHING, Now, Outcome
from kbroker.group.partition import _kept_partition, group_partition, java_string_hash
from kbroker.group.timers import Timers

STEPS = st.lists(
    st.tuples(st.sampled_from("SCD"), st.integers(0, 5), st.integers(0, 30)), max_size=200
)


@given(STEPS)
def test_timers_fire_when_a_dict_says_so(steps: list[tuple[str, int, int]]) -> None:
    timers, model, now, fired = Timers(), {}, 0, []
    for what, name, number in steps:
        if what == "S":
            model[name] = now + number
            timers.schedule(name, now + number, _noting(fired, name))
        elif what == "C":
            assert timers.cancel(name) == (model.pop(name, None) is not None)
        else:
            now += number
            while (action := timers.pop_due(now)) is not None:
                action(Now(0, now))
            due = {name for name, at_ms in model.items() if at_ms <= now}
            assert sorted(fired) == sorted(due)
            fired.clear()
            model = {name: at_ms for name, at_ms in model.items() if at_ms > now}
        assert len(timers) == len(model)
        assert all(timers.when(name) == at_ms for name, at_ms in model.items())
        next_ms = timers.next_ms()
        assert not model or (next_ms is not None and next_ms <= min(model.values()))


def _noting(fired: list[int], name: int):
    def action(now: Now) -> Outcome:
        fired.append(name)
        return NOTHING

    return action


def test_moving_timers_forward_piles_nothing_up() -> None:
    timers = Timers()
    for turn in range(10_000):
        timers.schedule("session", 45_000 + turn, lambda now: NOTHING)
        timers.schedule(turn, turn, lambda now: NOTHING)
        timers.cancel(turn)
    assert len(timers._heap) < 200


@pytest.mark.parametrize(
    ("text", "value"),
    [("", 0), ("a", 97), ("group-1", 293427299), ("polygenelubricants", -(1 << 31)),
     ("\U0001f600", 1772899)],
)  # fmt: skip
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_smallest_hash_falls_on_partition_zero() -> None:
    assert group_partition("polygenelubricants", 50) == 0


def test_long_group_ids_are_not_kept() -> None:
    before = _kept_partition.cache_info().currsize
    assert [group_partition("x" * 32_000 + str(n), 50) for n in range(3)] == [
        java_string_hash("x" * 32_000 + str(n)) % 50 for n in range(3)
    ]
    assert _kept_partition.cache_info().currsize == before
