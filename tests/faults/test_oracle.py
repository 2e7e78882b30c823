"""The judgement itself, shown what it must find and what it must let pass."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.support.oracle import (
    ANYWHERE,
    CommitHistory,
    History,
    Stored,
    judge_commit,
    judge_stored,
)


def sound() -> tuple[Stored, list[History]]:
    """Two producers, two partitions; the last record of each was sent and never answered."""
    stored: Stored = {0: {}, 1: {}}
    histories = [History("one"), History("two")]
    for number in range(20):
        for history in histories:
            partition = number % 2
            offset = len(stored[partition])
            stored[partition][offset] = b"%s %d ..." % (history.name.encode(), number)
            history.sent[number] = partition
            if number < 19:
                history.acked[number] = (partition, offset)
    return stored, histories


def test_what_is_sound_passes() -> None:
    stored, histories = sound()
    assert not judge_stored(stored, histories).faults()
    del stored[1][max(stored[1])]  # sent and never answered: it may be stored, or not
    histories[0].failed[20] = "TIMED_OUT"
    histories[0].sent[20] = 0
    assert not judge_stored(stored, histories).faults()


def lose(stored: Stored, histories: list[History]) -> None:
    del stored[0][4]


def move(stored: Stored, histories: list[History]) -> None:
    stored[0][100] = stored[0].pop(4)


def repeat(stored: Stored, histories: list[History]) -> None:
    stored[0][100] = stored[0][4]


def swap(stored: Stored, histories: list[History]) -> None:
    stored[1][2], stored[1][4] = stored[1][4], stored[1][2]


def invent(stored: Stored, histories: list[History]) -> None:
    stored[0][100] = b"one 77 ..."


def invent_a_producer(stored: Stored, histories: list[History]) -> None:
    stored[0][100] = b"three 7 ..."


def put_elsewhere(stored: Stored, histories: list[History]) -> None:
    stored[1][100] = stored[0].pop(4)


@pytest.mark.parametrize(
    ("damage", "kinds"),
    [
        (lose, {"lost"}),
        (move, {"lost", "reordered"}),
        (repeat, {"repeated", "reordered"}),
        (swap, {"lost", "reordered"}),
        (invent, {"foreign"}),
        (invent_a_producer, {"foreign"}),
        (put_elsewhere, {"lost", "foreign"}),
    ],
)
def test_what_is_broken_is_seen(
    damage: Callable[[Stored, list[History]], None], kinds: set[str]
) -> None:
    stored, histories = sound()
    damage(stored, histories)
    verdict = judge_stored(stored, histories)
    assert set(verdict.faults()) == kinds
    assert verdict.count() >= len(kinds)


def test_who_is_not_idempotent_may_repeat_and_not_lose() -> None:
    stored, histories = sound()
    histories[0].exact = histories[1].exact = False
    repeat(stored, histories)
    assert not judge_stored(stored, histories).faults()
    lose(stored, histories)
    assert set(judge_stored(stored, histories).faults()) == {"lost"}


def test_who_is_told_no_offset_may_find_it_anywhere() -> None:
    stored, histories = sound()
    histories[0].acked[4] = (0, ANYWHERE)
    assert not judge_stored(stored, histories).faults()
    del stored[0][4]
    assert judge_stored(stored, histories).lost


def test_commits() -> None:
    history = CommitHistory("group", sent=9, answered=7)
    assert not judge_commit(history, 7)
    assert not judge_commit(history, 9)
    assert judge_commit(history, 6) and judge_commit(history, 10)
    history = CommitHistory("group", sent=9, answered=7)
    assert not judge_commit(history, 9)
    assert judge_commit(history, 8) == ["group: 9 was seen, 8 is stored"]
