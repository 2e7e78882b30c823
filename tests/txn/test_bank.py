"""The bank, while the broker and its tellers are killed: the sum never changes, nothing is applied
twice, nothing that was acknowledged is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.support.rounds import rounds
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.txn.bank import COUNT, LEDGER, PARTITIONS, TELLERS, TOTAL, Bank, judge, lost
from tests.txn.committed import Follower, Found

SETTINGS = {"log.cleaner.backoff.ms": "500", "transaction.state.log.num.partitions": "3",
            "offsets.topic.num.partitions": "3",
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"}  # fmt: skip
ORDERS_A_KILL = 40
LIMIT_S = 240.0


@pytest.fixture
def bank(
    start_kbroker: Callable[..., BrokerProcess], tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[Bank]:
    made = Bank(start_kbroker(SETTINGS), tmp_path, lambda: request.getfixturevalue("classes"))
    yield made
    made.close()


def moment(bank: Bank, moments: random.Random) -> None:
    """Until some transactions more were told to their tellers."""
    goal = told_count(bank) + moments.randint(1, 8)

    def reached() -> bool:
        for teller in bank.tellers:
            teller.ensure()
        return told_count(bank) >= goal or told_count(bank) >= ordered(bank)

    wait_for("tellers go on", reached, LIMIT_S)


def told_count(bank: Bank) -> int:
    return sum(map(len, bank.told()))


def ordered(bank: Bank) -> int:
    return sum(map(len, bank.amounts))


def comes(bank: Bank, is_there: Callable[[list[int]], bool]) -> bool:
    """Whether the ledger becomes so while the tellers go on, by how many of each are whole in it.
    It is waited for: a reader of committed records sees what was told only when no transaction is
    open that began before it."""

    def looked() -> bool:
        for teller in bank.tellers:
            teller.ensure()
        return is_there(bank.audit())

    with suppress(TimeoutError):
        return wait_for("the ledger has it", looked, LIMIT_S, 0.1)
    return False


def lost_by_kill(bank: Bank) -> set[tuple[int, int]]:
    """The broker is killed and started; what was told before, and then is not there."""
    told = bank.told()
    bank.broker.kill()
    bank.broker.start()
    ends = [max(numbers, default=-1) for numbers in told]
    comes(bank, lambda whole: all(end < count for end, count in zip(ends, whole, strict=True)))
    return lost(told, bank.audit())


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", rounds(2, long=24, full=100))
def test_the_sum_never_changes(bank: Bank, kills: int, tally: Tally) -> None:
    moments = random.Random(kills)
    missing: set[tuple[int, int]] = set()
    for teller in bank.tellers:
        teller.ensure()
    for kill in range(kills):
        bank.order(ORDERS_A_KILL)
        moment(bank, moments)
        if kill % 2:
            bank.tellers[kill // 2 % TELLERS].kill()
        else:
            missing |= lost_by_kill(bank)
        bank.audit()
        if missing:
            break
    is_done = comes(bank, lambda whole: sum(whole) == ordered(bank))
    missing |= lost(bank.told(), bank.audit())
    tally("P4", tried=kills, lost=len(missing))
    assert not missing, sorted(missing)
    assert is_done, f"{bank.audit()} of {ordered(bank)} orders are applied"
    assert bank.sums() and set(bank.sums()) == {TOTAL}, bank.sums()
    assert bank.balances() == bank.expected()
    check_from_anywhere(bank, moments)


def check_from_anywhere(bank: Bank, moments: random.Random) -> None:
    """Who begins in the middle sees the rest of what everybody else sees."""
    for partition in range(PARTITIONS):
        whole = Follower(LEDGER, partition).read(bank.broker.port)
        assert whole == bank.ledger[partition]
        for _ in range(5):
            offset = moments.randint(0, whole[-1].offset)
            rest = Follower(LEDGER, partition, offset).read(bank.broker.port)
            assert rest == [one for one in whole if one.offset >= offset]


def test_control_a_bank_that_errs_is_noticed(tally: Tally) -> None:
    """A line twice, one missing, a balance that does not follow; an order that was told and is not
    there, or was told twice."""
    orders = [[(0, 2, 5), (2, 4, 1)], [(1, 3, 7)]]
    told = [[0, 1], [0]]
    assert COUNT > 4
    right = [
        [Found(0, b"0", b"0 0 95"), Found(1, b"1", b"1 0 93")],
        [Found(0, b"2", b"0 0 105"), Found(1, b"3", b"1 0 107"), Found(2, b"2", b"0 1 104")],
        [Found(0, b"4", b"0 1 101")],
    ]
    assert judge(right, orders) == [2, 1]
    assert not lost(told, [2, 1])
    missing = [right[0], right[1], []]
    assert judge(missing, orders) == [1, 1]
    assert lost(told, [1, 1]) == {(0, 1)}
    assert lost([[0, 1, 1], [0]], [2, 1]) == {(0, 1)}
    tally("P4", control=2)
    twice = [[*right[0], Found(2, b"1", b"1 0 93")], *right[1:]]
    wrong = [*right[:2], [Found(0, b"4", b"0 1 102")]]
    for ledger in (twice, wrong):
        with pytest.raises(AssertionError):
            judge(ledger, orders)
        tally("P4", control=1)
