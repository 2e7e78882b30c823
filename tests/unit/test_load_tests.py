"""perf/locust without Locust: what is drawn, how users come and go, what counts as lost."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kbroker.locust.draws import draw
from kbroker.locust.ledger import (
    ABORTED,
    Found,
    Order,
    Seen,
    Sent,
    Stamp,
    audit,
    stamp_of,
    stamped,
)
from kbroker.locust.shapes import PROFILES, users_at


def test_what_is_drawn() -> None:
    dice = random.Random(7)
    assert {draw("fixed:100", dice)() for _ in range(9)} == {100}
    uniform = [draw("uniform:10-20", dice)() for _ in range(500)]
    assert (min(uniform), max(uniform)) == (10, 20)
    sizes = sorted(draw("lognormal:200,1.0", dice)() for _ in range(2001))
    assert 170 < sizes[1000] < 235 and sizes[-1] > 1000
    keys = draw("zipf:100,1.0", dice)
    found = Counter(keys() for _ in range(5000))
    assert found.most_common(1)[0][0] == 0 and max(found) < 100 and found[0] > 4 * found[9]
    for text in ("", "none", "fixed", "uniform:9-1", "lognormal:0,1", "zipf:0", "gauss:1"):
        with pytest.raises(ValueError, match="no distribution"):
            draw(text, dice)


def test_users_come_and_go() -> None:
    def users(profile: str) -> list[int]:
        found = (users_at(profile, 100, 100.0, second + 0.5) for second in range(100))
        return [told[0] for told in found if told is not None]

    assert users("flat") == users("soak") == [100] * 100
    assert [users("step")[at] for at in (0, 20, 40, 60, 80)] == [20, 40, 60, 80, 100]
    assert [users("spike")[at] for at in (0, 39, 40, 59, 60)] == [20, 20, 100, 100, 20]
    assert all(users_at(profile, 1, 100.0, 100.0) is None for profile in PROFILES)


def test_a_stamp_comes_back() -> None:
    value = stamped(7, 9, 100)
    assert len(value) == 100 and stamp_of(value)[:2] == (7, 9)
    assert len(stamped(7, 9, 0)) == 24


def note(seen: Seen, *numbers: int) -> list[tuple[int, int]]:
    gaps = (seen.note(Stamp(1, number, 0), 0) for number in numbers)
    return [gap for gap in gaps if gap is not None]


def test_a_gap_is_seen_unless_the_partition_moved() -> None:
    seen = Seen()
    assert note(seen, 5, 6, 7, 6, 7, 8) == []
    assert seen.again == 2
    assert note(seen, 11, 12) == [(9, 10)]
    seen.forget([1])
    assert note(seen, 14) == [(13, 13)]
    seen.forget([0])
    assert note(seen, 100) == []


def test_what_is_lost() -> None:
    sent = Sent()
    for _ in range(5):
        sent.take((1, 0))
    sent.take((1, 1))
    sent.failed((1, 0), 3)
    assert sent.may_miss((1, 0), 3, 3) and not sent.may_miss((1, 0), 2, 3)
    found = Found()
    for number in (0, 2, 1, 2):  # 1 came late, 2 twice
        found.note(Stamp(1, number, 0), 0)
    result = audit([sent.told()], found)
    assert result.acknowledged == 5
    assert result.lost == ["lane 1, partition 0, number 4", "lane 1, partition 1, number 0"]
    assert result.twice == 1
    found.note(Stamp(1, 4, 0), 0)
    found.note(Stamp(1, 0, 0), 1)
    assert not audit([sent.told()], found).lost


def test_what_was_aborted_is_found() -> None:
    found = Found()
    found.note(Stamp(1, ABORTED, 0), 0)
    found.note(Stamp(1, 0, 0), 0)
    assert (found.aborted, found.twice) == (1, 0)


def test_copies_are_what_the_topic_begins_with() -> None:
    def order(*numbers: int) -> Order:
        made = Order()
        for number in numbers:
            made.note(Stamp(1, number, number), 3)
        return made

    source = order(0, 1, 2)
    assert [order(*numbers).strays(source) for numbers in ((), (0,), (0, 1, 2))] == [[]] * 3
    for numbers in ((1,), (0, 0, 1), (0, 2), (0, 1, 2, 2)):
        assert order(*numbers).strays(source) == [3]
