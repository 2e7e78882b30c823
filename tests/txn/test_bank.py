"""The bank, while the broker and its tellers are killed: the sum never changes, nothing is applied
twice, nothing that was acknowledged is lost."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.processes import BrokerProcess
from tests.support.tally import Tally
from tests.support.waits import wait_for
from tests.txn.bank import COUNT, LEDGER, PARTITIONS, TELLERS, TOTAL, Bank, judge
from tests.txn.committed import Follower, Found

LONG = pytest.mark.long
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


@pytest.mark.timeout(7200)
@pytest.mark.parametrize("kills", [4, pytest.param(100, marks=LONG)])
def test_the_sum_never_changes(bank: Bank, kills: int, tally: Tally) -> None:
    moments = random.Random(kills)
    for teller in bank.tellers:
        teller.ensure()
    for kill in range(kills):
        bank.order(ORDERS_A_KILL)
        moment(bank, moments)
        if kill % 2:
            bank.tellers[kill // 2 % TELLERS].kill()
        else:
            bank.broker.kill()
            bank.broker.start()
        bank.audit()

    def is_done() -> bool:
        for teller in bank.tellers:
            teller.ensure()
        return bank.audit() == ordered(bank)

    wait_for("all orders are applied", is_done, LIMIT_S, 0.2)
    lost = [told - set(range(len(bank.amounts[n]))) for n, told in enumerate(bank.told())]
    tally("P4", tried=kills, lost=sum(map(len, lost)))
    assert not any(lost), lost
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
    """A line twice, one missing, a balance that does not follow."""
    orders = [[(0, 2, 5), (2, 4, 1)], [(1, 3, 7)]]
    assert COUNT > 4
    right = [
        [Found(0, b"0", b"0 0 95"), Found(1, b"1", b"1 0 93")],
        [Found(0, b"2", b"0 0 105"), Found(1, b"3", b"1 0 107"), Found(2, b"2", b"0 1 104")],
        [Found(0, b"4", b"0 1 101")],
    ]
    assert judge(right, orders) == 3
    missing = [right[0], right[1], []]
    assert judge(missing, orders) == 2
    twice = [[*right[0], Found(2, b"1", b"1 0 93")], *right[1:]]
    wrong = [*right[:2], [Found(0, b"4", b"0 1 102")]]
    for ledger in (twice, wrong):
        with pytest.raises(AssertionError):
            judge(ledger, orders)
        tally("P4", control=1)
